// Elementwise arithmetic on the CPU, for every dtype but bool.
#include "ringgrad/core/base/number.h"
#include "ringgrad/core/cpu/elementwise.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

template <class Body>
void visit_number(const char* operation, DType dtype, Body&& body) {
  if (dtype == DType::Bool) throw_unsupported_dtype(operation, dtype, "a number");
  visit_dtype(operation, dtype, std::forward<Body>(body));
}

void fill_cpu(Stream stream, const Tensor& x, double value) {
  visit_dtype("fill", x.dtype(), [&]<class T>() { map<T>(stream, x, [v = number<T>(value)] { return v; }); });
}

void affine_cpu(Stream stream, const Tensor& y, const Tensor& x, double scale, double shift) {
  visit_number("affine", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    map<T>(
        stream, y,
        [a = number<Wrapping<A>>(scale), b = number<Wrapping<A>>(shift)](A v) {
          return static_cast<A>(a * Wrapping<A>(v) + b);
        },
        x);
  });
}

void axpby_cpu(Stream stream, const Tensor& y, const Tensor& x, double alpha, double beta) {
  visit_number("axpby", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    map<T>(
        stream, y,
        [a = number<Wrapping<A>>(alpha), b = number<Wrapping<A>>(beta)](A u, A v) {
          return static_cast<A>(a * Wrapping<A>(u) + b * Wrapping<A>(v));
        },
        x, y);
  });
}

// f: a generic lambda [](A u, A v) -> A.
template <class F>
void binary(const char* name, Stream stream, const Tensor& y, const Tensor& a, const Tensor& b, F f) {
  visit_number(name, y.dtype(), [&]<class T>() { map<T>(stream, y, f, a, b); });
}
void add_cpu(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  binary("add", stream, y, a, b, []<class A>(A u, A v) { return static_cast<A>(Wrapping<A>(u) + Wrapping<A>(v)); });
}
void sub_cpu(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  binary("sub", stream, y, a, b, []<class A>(A u, A v) { return static_cast<A>(Wrapping<A>(u) - Wrapping<A>(v)); });
}
void mul_cpu(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  binary("mul", stream, y, a, b, []<class A>(A u, A v) { return static_cast<A>(Wrapping<A>(u) * Wrapping<A>(v)); });
}
void div_cpu(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  binary("div", stream, y, a, b, []<class A>(A u, A v) -> A {
    if constexpr (std::is_integral_v<A>) {  // never a trap: neither by zero, nor the least number by -1
      if (std::is_signed_v<A> && v == A(-1)) return static_cast<A>(std::make_unsigned_t<A>(0) - u);
      return v == 0 ? A{0} : static_cast<A>(u / v);
    } else {
      return u / v;
    }
  });
}
void maximum_cpu(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  binary("maximum", stream, y, a, b, []<class A>(A u, A v) -> A { return u > v || u != u ? u : v; });
}

void maximum_backward_cpu(Stream stream, const Tensor& da, const Tensor& db, const Tensor& dy, const Tensor& a,
                          const Tensor& b) {
  visit_floating("maximum", dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const auto share = [](A g, A mine, A other) -> A { return mine < other ? A{0} : mine == other ? g / 2 : g; };
    map<T>(stream, da, share, dy, a, b);
    map<T>(stream, db, share, dy, b, a);
  });
}

void equal_cpu(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  visit_dtype("equal", a.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    map_to<bool, T>(
        stream, y, [](A u, A v) { return u == v; }, a, b);
  });
}

REGISTER_KERNEL(fill, DeviceType::CPU, Provider::Native, fill_cpu);
REGISTER_KERNEL(affine, DeviceType::CPU, Provider::Native, affine_cpu);
REGISTER_KERNEL(axpby, DeviceType::CPU, Provider::Native, axpby_cpu);
REGISTER_KERNEL(add, DeviceType::CPU, Provider::Native, add_cpu);
REGISTER_KERNEL(sub, DeviceType::CPU, Provider::Native, sub_cpu);
REGISTER_KERNEL(mul, DeviceType::CPU, Provider::Native, mul_cpu);
REGISTER_KERNEL(div, DeviceType::CPU, Provider::Native, div_cpu);
REGISTER_KERNEL(maximum, DeviceType::CPU, Provider::Native, maximum_cpu);
REGISTER_KERNEL(maximum_backward, DeviceType::CPU, Provider::Native, maximum_backward_cpu);
REGISTER_KERNEL(equal, DeviceType::CPU, Provider::Native, equal_cpu);

}  // namespace
}  // namespace ringgrad::cpu
