// Elementwise functions and their derivatives on the CPU, for the floating dtypes.
#include <cmath>

#include "ringgrad/core/cpu/elementwise.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

template <class A>
A sigmoid_of(A x) {
  return 1 / (1 + std::exp(-x));
}

// Registers NAME(y, x) and NAME(dx, dy, saved): the two shapes that nearly all of these kernels have.
#define UNARY(NAME, EXPRESSION)                                       \
  void NAME##_cpu(Stream stream, const Tensor& y, const Tensor& x_) { \
    visit_floating(#NAME, x_.dtype(), [&]<class T>() {                \
      using A = Accumulator<T>;                                       \
      map<T>(                                                         \
          stream, y, [](A x) -> A { return EXPRESSION; }, x_);        \
    });                                                               \
  }                                                                   \
  REGISTER_KERNEL(NAME, DeviceType::CPU, Provider::Native, NAME##_cpu);
#define UNARY_BACKWARD(NAME, SAVED, EXPRESSION)                                              \
  void NAME##_cpu(Stream stream, const Tensor& dx, const Tensor& dy_, const Tensor& saved) { \
    visit_floating(#NAME, saved.dtype(), [&]<class T>() {                                    \
      using A = Accumulator<T>;                                                              \
      map<T>(                                                                                \
          stream, dx, [](A dy, A SAVED) -> A { return EXPRESSION; }, dy_, saved);            \
    });                                                                                      \
  }                                                                                          \
  REGISTER_KERNEL(NAME, DeviceType::CPU, Provider::Native, NAME##_cpu);

UNARY(exp, std::exp(x))
UNARY(log, std::log(x))
UNARY(sqrt, std::sqrt(x))
UNARY_BACKWARD(sqrt_backward, y, dy / (2 * y))
UNARY(abs, std::abs(x))
UNARY_BACKWARD(abs_backward, x, x > 0 ? dy : x < 0 ? -dy : A{0})
UNARY(relu, x > 0 || x != x ? x : A{0})
UNARY_BACKWARD(relu_backward, y, y > 0 ? dy : A{0})
UNARY(sigmoid, sigmoid_of(x))
UNARY_BACKWARD(sigmoid_backward, y, dy* y*(1 - y))
UNARY(tanh, std::tanh(x))
UNARY_BACKWARD(tanh_backward, y, dy*(1 - y * y))
UNARY(silu, x* sigmoid_of(x))
UNARY_BACKWARD(silu_backward, x, dy* sigmoid_of(x) * (1 + x * (1 - sigmoid_of(x))))

constexpr double kSqrtHalf = 0.70710678118654752440;          // 1 / √2
constexpr double kInverseSqrtTwoPi = 0.39894228040143267794;  // 1 / √(2π)
UNARY(gelu, x* A(0.5) * (1 + std::erf(x * A(kSqrtHalf))))
UNARY_BACKWARD(gelu_backward, x,
               dy*(A(0.5) * (1 + std::erf(x * A(kSqrtHalf))) + x * A(kInverseSqrtTwoPi) * std::exp(-x * x / 2)))

#undef UNARY
#undef UNARY_BACKWARD

void pow_cpu(Stream stream, const Tensor& y, const Tensor& x, double exponent) {
  visit_floating("pow", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    if (exponent == 2)
      map<T>(
          stream, y, [](A v) -> A { return v * v; }, x);
    else if (exponent == -1)
      map<T>(
          stream, y, [](A v) -> A { return 1 / v; }, x);
    else
      map<T>(
          stream, y, [e = static_cast<A>(exponent)](A v) -> A { return std::pow(v, e); }, x);
  });
}
void pow_backward_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& x, double exponent) {
  visit_floating("pow", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const A e = static_cast<A>(exponent);
    if (exponent == 0)
      map<T>(stream, dx, [] { return A{0}; });
    else if (exponent == 2)
      map<T>(
          stream, dx, [](A g, A v) -> A { return 2 * g * v; }, dy, x);
    else
      map<T>(
          stream, dx, [e](A g, A v) -> A { return g * e * std::pow(v, e - 1); }, dy, x);
  });
}

void clamp_cpu(Stream stream, const Tensor& y, const Tensor& x, double low, double high) {
  visit_floating("clamp", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const A a = static_cast<A>(low), b = static_cast<A>(high);
    map<T>(
        stream, y, [a, b](A v) -> A { return v < a   ? a
                                             : v > b ? b
                                                     : v; }, x);
  });
}
void clamp_backward_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& x, double low, double high) {
  visit_floating("clamp", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const A a = static_cast<A>(low), b = static_cast<A>(high);
    map<T>(
        stream, dx, [a, b](A g, A v) -> A { return v >= a && v <= b ? g : A{0}; }, dy, x);
  });
}

void leaky_relu_cpu(Stream stream, const Tensor& y, const Tensor& x, double slope) {
  visit_floating("leaky_relu", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    map<T>(
        stream, y, [s = static_cast<A>(slope)](A v) -> A { return v > 0 ? v : s * v; }, x);
  });
}
void leaky_relu_backward_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& x, double slope) {
  visit_floating("leaky_relu", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    map<T>(
        stream, dx, [s = static_cast<A>(slope)](A g, A v) -> A { return v > 0 ? g : s * g; }, dy, x);
  });
}

void bce_with_logits_cpu(Stream stream, const Tensor& y, const Tensor& x, const Tensor& t) {
  visit_floating("bce_with_logits", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    map<T>(
        stream, y,
        [](A v, A target) -> A { return (v > 0 ? v : A{0}) - v * target + std::log1p(std::exp(-std::abs(v))); }, x, t);
  });
}
void bce_with_logits_backward_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& t) {
  visit_floating("bce_with_logits", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    map<T>(
        stream, dx, [](A g, A v, A target) -> A { return g * (sigmoid_of(v) - target); }, dy, x, t);
  });
}

REGISTER_KERNEL(pow, DeviceType::CPU, Provider::Native, pow_cpu);
REGISTER_KERNEL(pow_backward, DeviceType::CPU, Provider::Native, pow_backward_cpu);
REGISTER_KERNEL(clamp, DeviceType::CPU, Provider::Native, clamp_cpu);
REGISTER_KERNEL(clamp_backward, DeviceType::CPU, Provider::Native, clamp_backward_cpu);
REGISTER_KERNEL(leaky_relu, DeviceType::CPU, Provider::Native, leaky_relu_cpu);
REGISTER_KERNEL(leaky_relu_backward, DeviceType::CPU, Provider::Native, leaky_relu_backward_cpu);
REGISTER_KERNEL(bce_with_logits, DeviceType::CPU, Provider::Native, bce_with_logits_cpu);
REGISTER_KERNEL(bce_with_logits_backward, DeviceType::CPU, Provider::Native, bce_with_logits_backward_cpu);

}  // namespace
}  // namespace ringgrad::cpu
