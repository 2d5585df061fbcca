// Elementwise arithmetic, for every dtype but bool. One functor each; common/map.cuh maps elements to threads.
#include "ringgrad/core/base/number.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/map.cuh"

namespace ringgrad::cuda {
namespace {

template <class A>
struct Constant {
  A value;
  __device__ A operator()() const { return value; }
};
template <class A>
struct Affine {
  Wrapping<A> scale, shift;
  __device__ A operator()(A x) const { return static_cast<A>(scale * Wrapping<A>(x) + shift); }
};
template <class A>
struct Axpby {
  Wrapping<A> alpha, beta;
  __device__ A operator()(A x, A y) const { return static_cast<A>(alpha * Wrapping<A>(x) + beta * Wrapping<A>(y)); }
};
template <class A>
struct Add {
  __device__ A operator()(A a, A b) const { return static_cast<A>(Wrapping<A>(a) + Wrapping<A>(b)); }
};
template <class A>
struct Sub {
  __device__ A operator()(A a, A b) const { return static_cast<A>(Wrapping<A>(a) - Wrapping<A>(b)); }
};
template <class A>
struct Mul {
  __device__ A operator()(A a, A b) const { return static_cast<A>(Wrapping<A>(a) * Wrapping<A>(b)); }
};
template <class A>
struct Div {
  __device__ A operator()(A a, A b) const {
    if constexpr (std::is_integral_v<A>) {  // as on the CPU, where it must not trap
      if (std::is_signed_v<A> && b == A(-1)) return static_cast<A>(std::make_unsigned_t<A>(0) - a);
      return b == 0 ? A(0) : static_cast<A>(a / b);
    } else {
      return a / b;
    }
  }
};
template <class A>
struct Maximum {
  __device__ A operator()(A a, A b) const { return a > b || a != a ? a : b; }
};
// The share of dy that goes to `mine`.
template <class A>
struct MaximumBackward {
  __device__ A operator()(A dy, A mine, A other) const { return mine < other ? A(0) : mine == other ? dy / 2 : dy; }
};
template <class A>
struct Equal {
  __device__ bool operator()(A a, A b) const { return a == b; }
};

void fill_cuda(Stream stream, const Tensor& x, double value) {
  visit_dtype("fill", x.dtype(), [&]<class T>() {
    // Rounded to T on the host, exactly as on the CPU.
    const T rounded = number<T>(value);
    map<T>(stream, x, Constant<ComputeOf<T>>{static_cast<ComputeOf<T>>(rounded)});
  });
}

void affine_cuda(Stream stream, const Tensor& y, const Tensor& x, double scale, double shift) {
  visit_number("affine", x.dtype(), [&]<class T>() {
    using A = ComputeOf<T>;
    map<T>(stream, y, Affine<A>{number<Wrapping<A>>(scale), number<Wrapping<A>>(shift)}, x);
  });
}

void axpby_cuda(Stream stream, const Tensor& y, const Tensor& x, double alpha, double beta) {
  visit_number("axpby", x.dtype(), [&]<class T>() {
    using A = ComputeOf<T>;
    map<T>(stream, y, Axpby<A>{number<Wrapping<A>>(alpha), number<Wrapping<A>>(beta)}, x, y);
  });
}

template <template <class> class Function>
void binary(const char* name, Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  visit_number(name, y.dtype(), [&]<class T>() { map<T>(stream, y, Function<ComputeOf<T>>{}, a, b); });
}
void add_cuda(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) { binary<Add>("add", stream, y, a, b); }
void sub_cuda(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) { binary<Sub>("sub", stream, y, a, b); }
void mul_cuda(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) { binary<Mul>("mul", stream, y, a, b); }
void div_cuda(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) { binary<Div>("div", stream, y, a, b); }
void maximum_cuda(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  binary<Maximum>("maximum", stream, y, a, b);
}

void maximum_backward_cuda(Stream stream, const Tensor& da, const Tensor& db, const Tensor& dy, const Tensor& a,
                           const Tensor& b) {
  visit_floating("maximum", dy.dtype(), [&]<class T>() {
    map<T>(stream, da, MaximumBackward<ComputeOf<T>>{}, dy, a, b);
    map<T>(stream, db, MaximumBackward<ComputeOf<T>>{}, dy, b, a);
  });
}

void equal_cuda(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  visit_dtype("equal", a.dtype(), [&]<class T>() { map_to<bool, T>(stream, y, Equal<ComputeOf<T>>{}, a, b); });
}

REGISTER_KERNEL(fill, DeviceType::CUDA, Provider::Native, fill_cuda);
REGISTER_KERNEL(affine, DeviceType::CUDA, Provider::Native, affine_cuda);
REGISTER_KERNEL(axpby, DeviceType::CUDA, Provider::Native, axpby_cuda);
REGISTER_KERNEL(add, DeviceType::CUDA, Provider::Native, add_cuda);
REGISTER_KERNEL(sub, DeviceType::CUDA, Provider::Native, sub_cuda);
REGISTER_KERNEL(mul, DeviceType::CUDA, Provider::Native, mul_cuda);
REGISTER_KERNEL(div, DeviceType::CUDA, Provider::Native, div_cuda);
REGISTER_KERNEL(maximum, DeviceType::CUDA, Provider::Native, maximum_cuda);
REGISTER_KERNEL(maximum_backward, DeviceType::CUDA, Provider::Native, maximum_backward_cuda);
REGISTER_KERNEL(equal, DeviceType::CUDA, Provider::Native, equal_cuda);

}  // namespace
}  // namespace ringgrad::cuda
