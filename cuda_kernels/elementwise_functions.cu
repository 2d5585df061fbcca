// Elementwise functions and their derivatives, for the floating dtypes. One functor each; common/map.cuh maps elements
// to threads.
#include <cmath>

#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/map.cuh"

namespace ringgrad::cuda {
namespace {

template <class A>
__device__ A sigmoid_of(A x) {
  return 1 / (1 + std::exp(-x));
}

// Defines and registers NAME(y, x) and NAME(dx, dy, saved): the two shapes that nearly all of these kernels have.
#define UNARY(NAME, EXPRESSION)                                                                                  \
  template <class A>                                                                                             \
  struct NAME##_function {                                                                                       \
    __device__ A operator()(A x) const { return EXPRESSION; }                                                    \
  };                                                                                                             \
  void NAME##_cuda(Stream stream, const Tensor& y, const Tensor& x) {                                            \
    visit_floating(#NAME, x.dtype(), [&]<class T>() { map<T>(stream, y, NAME##_function<ComputeOf<T>>{}, x); }); \
  }                                                                                                              \
  REGISTER_KERNEL(NAME, DeviceType::CUDA, Provider::Native, NAME##_cuda);
#define UNARY_BACKWARD(NAME, SAVED, EXPRESSION)                                                         \
  template <class A>                                                                                    \
  struct NAME##_function {                                                                              \
    __device__ A operator()(A dy, A SAVED) const { return EXPRESSION; }                                 \
  };                                                                                                    \
  void NAME##_cuda(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& saved) {            \
    visit_floating(#NAME, saved.dtype(),                                                                \
                   [&]<class T>() { map<T>(stream, dx, NAME##_function<ComputeOf<T>>{}, dy, saved); }); \
  }                                                                                                     \
  REGISTER_KERNEL(NAME, DeviceType::CUDA, Provider::Native, NAME##_cuda);

UNARY(exp, std::exp(x))
UNARY(log, std::log(x))
UNARY(sqrt, std::sqrt(x))
UNARY_BACKWARD(sqrt_backward, y, dy / (2 * y))
UNARY(abs, std::abs(x))
UNARY_BACKWARD(abs_backward, x, x > 0 ? dy : x < 0 ? -dy : A(0))
UNARY(relu, x > 0 || x != x ? x : A(0))
UNARY_BACKWARD(relu_backward, y, y > 0 ? dy : A(0))
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

// ---- functions with parameters --------------------------------------------------------------------------------------

template <class A>
struct Square {
  __device__ A operator()(A x) const { return x * x; }
};
template <class A>
struct Pow {
  A exponent;
  __device__ A operator()(A x) const { return std::pow(x, exponent); }
};
template <class A>
struct PowBackward {
  A exponent;
  __device__ A operator()(A dy, A x) const {
    if (exponent == 0) return 0;
    const A slope = exponent == 2 ? x : std::pow(x, exponent - 1);
    return dy * exponent * slope;
  }
};
template <class A>
struct Clamp {
  A low, high;
  __device__ A operator()(A x) const { return x < low ? low : x > high ? high : x; }
};
template <class A>
struct ClampBackward {
  A low, high;
  __device__ A operator()(A dy, A x) const { return x >= low && x <= high ? dy : A(0); }
};
template <class A>
struct LeakyRelu {
  A slope;
  __device__ A operator()(A x) const { return x > 0 ? x : slope * x; }
};
template <class A>
struct LeakyReluBackward {
  A slope;
  __device__ A operator()(A dy, A x) const { return x > 0 ? dy : slope * dy; }
};
template <class A>
struct BceWithLogits {
  __device__ A operator()(A x, A t) const { return (x > 0 ? x : A(0)) - x * t + std::log1p(std::exp(-std::abs(x))); }
};
template <class A>
struct BceWithLogitsBackward {
  __device__ A operator()(A dy, A x, A t) const { return dy * (sigmoid_of(x) - t); }
};

void pow_cuda(Stream stream, const Tensor& y, const Tensor& x, double exponent) {
  visit_floating("pow", x.dtype(), [&]<class T>() {
    using A = ComputeOf<T>;
    if (exponent == 2)
      map<T>(stream, y, Square<A>{}, x);
    else
      map<T>(stream, y, Pow<A>{static_cast<A>(exponent)}, x);
  });
}
void pow_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& x, double exponent) {
  visit_floating("pow", x.dtype(), [&]<class T>() {
    using A = ComputeOf<T>;
    map<T>(stream, dx, PowBackward<A>{static_cast<A>(exponent)}, dy, x);
  });
}

void clamp_cuda(Stream stream, const Tensor& y, const Tensor& x, double low, double high) {
  visit_floating("clamp", x.dtype(), [&]<class T>() {
    using A = ComputeOf<T>;
    map<T>(stream, y, Clamp<A>{static_cast<A>(low), static_cast<A>(high)}, x);
  });
}
void clamp_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& x, double low, double high) {
  visit_floating("clamp", x.dtype(), [&]<class T>() {
    using A = ComputeOf<T>;
    map<T>(stream, dx, ClampBackward<A>{static_cast<A>(low), static_cast<A>(high)}, dy, x);
  });
}

void leaky_relu_cuda(Stream stream, const Tensor& y, const Tensor& x, double slope) {
  visit_floating("leaky_relu", x.dtype(), [&]<class T>() {
    using A = ComputeOf<T>;
    map<T>(stream, y, LeakyRelu<A>{static_cast<A>(slope)}, x);
  });
}
void leaky_relu_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& x, double slope) {
  visit_floating("leaky_relu", x.dtype(), [&]<class T>() {
    using A = ComputeOf<T>;
    map<T>(stream, dx, LeakyReluBackward<A>{static_cast<A>(slope)}, dy, x);
  });
}

void bce_with_logits_cuda(Stream stream, const Tensor& y, const Tensor& x, const Tensor& t) {
  visit_floating("bce_with_logits", x.dtype(),
                 [&]<class T>() { map<T>(stream, y, BceWithLogits<ComputeOf<T>>{}, x, t); });
}
void bce_with_logits_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& x,
                                   const Tensor& t) {
  visit_floating("bce_with_logits", x.dtype(),
                 [&]<class T>() { map<T>(stream, dx, BceWithLogitsBackward<ComputeOf<T>>{}, dy, x, t); });
}

REGISTER_KERNEL(pow, DeviceType::CUDA, Provider::Native, pow_cuda);
REGISTER_KERNEL(pow_backward, DeviceType::CUDA, Provider::Native, pow_backward_cuda);
REGISTER_KERNEL(clamp, DeviceType::CUDA, Provider::Native, clamp_cuda);
REGISTER_KERNEL(clamp_backward, DeviceType::CUDA, Provider::Native, clamp_backward_cuda);
REGISTER_KERNEL(leaky_relu, DeviceType::CUDA, Provider::Native, leaky_relu_cuda);
REGISTER_KERNEL(leaky_relu_backward, DeviceType::CUDA, Provider::Native, leaky_relu_backward_cuda);
REGISTER_KERNEL(bce_with_logits, DeviceType::CUDA, Provider::Native, bce_with_logits_cuda);
REGISTER_KERNEL(bce_with_logits_backward, DeviceType::CUDA, Provider::Native, bce_with_logits_backward_cuda);

}  // namespace
}  // namespace ringgrad::cuda
