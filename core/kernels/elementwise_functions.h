// The elementwise functions of core/kernels.h and their derivatives, written once for all devices.
// core/kernels/elementwise_arithmetic.h says what a device's Backend provides. Here it also
// provides Math, the functions that a device may compute in its own way.
#pragma once

#include <cmath>

#include "ringgrad/core/base/number.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Φ(x), the part of the normal distribution below x, and its derivative, the density φ(x) =
// e^(-x²/2) / √(2π).
template <class A>
struct Normal {
  A below;
  A density;
};
inline constexpr double kSqrtHalf = 0.70710678118654752440;          // 1 / √2
inline constexpr double kInverseSqrtTwoPi = 0.39894228040143267794;  // 1 / √(2π)

// The functions of <cmath>, for a device that provides no others.
struct StandardMath {
#define FUNCTION(NAME)                      \
  template <class A>                        \
  static RINGGRAD_HOST_DEVICE A NAME(A x) { \
    return std::NAME(x);                    \
  }
  FUNCTION(exp)
  FUNCTION(expm1)
  FUNCTION(log)
  FUNCTION(log1p)
  FUNCTION(tanh)
  FUNCTION(sin)
  FUNCTION(cos)
#undef FUNCTION
  template <class A>
  static RINGGRAD_HOST_DEVICE Normal<A> normal(A x) {
    return {A(0.5) * std::erfc(-x * A(kSqrtHalf)), A(kInverseSqrtTwoPi) * std::exp(-x * x / 2)};
  }
};

template <class Backend>
struct ElementwiseFunctions {
  using Math = typename Backend::Math;
  // Takes the exponential of -|x|. The exponential of a large positive x would overflow although
  // the result is finite.
  template <class A>
  static RINGGRAD_HOST_DEVICE A logistic(A x) {
    const A power = Math::exp(-std::abs(x));
    return (x < 0 ? power : A(1)) / (1 + power);
  }

  // tanh(log(1 + e^x)) = ((1 + e^x)² - 1) / ((1 + e^x)² + 1). mish_rest() is 1 minus that. Both are
  // computed without a subtraction, from the exponential of -|x|.
  template <class A>
  static RINGGRAD_HOST_DEVICE A mish_part(A x) {
    const A e = Math::exp(-std::abs(x));
    return x > 0 ? (1 + 2 * e) / (1 + 2 * e * (1 + e)) : e * (2 + e) / (2 + e * (2 + e));
  }
  template <class A>
  static RINGGRAD_HOST_DEVICE A mish_rest(A x) {
    const A e = Math::exp(-std::abs(x));
    return x > 0 ? 2 * e * e / (1 + 2 * e * (1 + e)) : 2 / (2 + e * (2 + e));
  }
  // gelu_tanh() is x times the logistic function of this argument. tanh_slope_by_x() is x times the
  // argument's derivative. Beyond |x| = 20 that does not affect the result, and x² could overflow.
  template <class A>
  static RINGGRAD_HOST_DEVICE A tanh_argument(A x) {
    return A(1.5957691216057308) * x * (1 + A(0.044715) * x * x);
  }
  template <class A>
  static RINGGRAD_HOST_DEVICE A tanh_slope_by_x(A x) {
    const A near = x > 20 ? A(20) : x < -20 ? A(-20) : x;
    return A(1.5957691216057308) * near * (1 + A(0.134145) * near * near);
  }

// FORWARD defines NAME(y, x, numbers…) and BACKWARD defines NAME(dx, dy, saved, numbers…). Nearly
// all of these kernels have one of these two forms. The arguments are the formula and the names of
// up to two numbers in it.
#define DOUBLES(FIRST, ...) double FIRST __VA_OPT__(, double __VA_ARGS__)
#define NARROWED(FIRST, ...) static_cast<A>(FIRST) __VA_OPT__(, static_cast<A>(__VA_ARGS__))
#define FORWARD(NAME, EXPRESSION, ...)                                                          \
  template <class A>                                                                            \
  struct NAME##_formula {                                                                       \
    __VA_OPT__(A __VA_ARGS__;)                                                                  \
    RINGGRAD_HOST_DEVICE A operator()(A x) const { return EXPRESSION; }                         \
  };                                                                                            \
  static void NAME(Stream stream, const Tensor& y,                                              \
                   const Tensor& x __VA_OPT__(, DOUBLES(__VA_ARGS__))) {                        \
    visit_floating(#NAME, x.dtype(), [&]<class T>() {                                           \
      using A = Accumulator<T>;                                                                 \
      Backend::template map<T>(stream, y, NAME##_formula<A>{__VA_OPT__(NARROWED(__VA_ARGS__))}, \
                               x);                                                              \
    });                                                                                         \
  }
#define BACKWARD(NAME, SAVED, EXPRESSION, ...)                                                   \
  template <class A>                                                                             \
  struct NAME##_formula {                                                                        \
    __VA_OPT__(A __VA_ARGS__;)                                                                   \
    RINGGRAD_HOST_DEVICE A operator()(A dy, A SAVED) const { return EXPRESSION; }                \
  };                                                                                             \
  static void NAME(Stream stream, const Tensor& dx, const Tensor& dy,                            \
                   const Tensor& saved __VA_OPT__(, DOUBLES(__VA_ARGS__))) {                     \
    visit_floating(#NAME, saved.dtype(), [&]<class T>() {                                        \
      using A = Accumulator<T>;                                                                  \
      Backend::template map<T>(stream, dx, NAME##_formula<A>{__VA_OPT__(NARROWED(__VA_ARGS__))}, \
                               dy, saved);                                                       \
    });                                                                                          \
  }

  // clang-format off
  FORWARD(exp, Math::exp(x))
  FORWARD(log, Math::log(x))
  FORWARD(log1p, Math::log1p(x))
  BACKWARD(log1p_backward, x, dy / (1 + x))
  FORWARD(sin, Math::sin(x))
  BACKWARD(sin_backward, x, dy * Math::cos(x))
  FORWARD(cos, Math::cos(x))
  BACKWARD(cos_backward, x, -dy * Math::sin(x))
  FORWARD(sqrt, std::sqrt(x))
  BACKWARD(sqrt_backward, y, dy / (2 * y))
  FORWARD(abs, std::abs(x))
  BACKWARD(abs_backward, x, x > 0 ? dy : x < 0 ? -dy : dy * x)  // 0 or NaN
  FORWARD(relu, x > 0 || x != x ? x : A(0))
  BACKWARD(relu_backward, y, y > 0 ? dy : A(0))
  FORWARD(sigmoid, logistic(x))
  BACKWARD(sigmoid_backward, y, dy * y * (1 - y))
  FORWARD(tanh, Math::tanh(x))
  BACKWARD(tanh_backward, y, dy * (1 - y * y))
  FORWARD(silu, x * logistic(x))
  BACKWARD(silu_backward, x, dy * logistic(x) * (1 + x * (1 - logistic(x))))
  FORWARD(gelu, x * Math::normal(x).below)
  BACKWARD(gelu_backward, x, dy * (Math::normal(x).below + x * Math::normal(x).density))

  FORWARD(mish, x * mish_part(x))
  BACKWARD(mish_backward, x,
           dy * (mish_part(x) + x * mish_rest(x) * (1 + mish_part(x)) * logistic(x)))
  FORWARD(gelu_tanh, x * logistic(tanh_argument(x)))
  BACKWARD(gelu_tanh_backward, x,
           dy * logistic(tanh_argument(x)) *
               (1 + tanh_slope_by_x(x) * logistic(-tanh_argument(x))))
  FORWARD(hardswish, x > 3 ? x : x < -3 ? A(0) : x * (x + 3) / 6)
  BACKWARD(hardswish_backward, x, x >= 3 ? dy : x <= -3 ? A(0) : dy * (x / 3 + A(0.5)))
  FORWARD(floor, std::floor(x))
  FORWARD(ceil, std::ceil(x))
  FORWARD(round, std::nearbyint(x))
  FORWARD(trunc, std::trunc(x))
  FORWARD(sign, A(x > 0) - A(x < 0))

  FORWARD(clamp, x < low ? low : x > high ? high : x, low, high)
  BACKWARD(clamp_backward, x, x > low && x < high ? dy : A(0), low, high)
  FORWARD(leaky_relu, x > 0 ? x : slope * x, slope)
  BACKWARD(leaky_relu_backward, x, x > 0 ? dy : slope * dy, slope)
  FORWARD(elu, x > 0 ? x : alpha * Math::expm1(x), alpha)
  BACKWARD(elu_backward, x, x > 0 ? dy : dy * alpha * Math::exp(x), alpha)
  FORWARD(softplus,
          (x * beta > 0 ? x : A(0)) + Math::log1p(Math::exp(-std::abs(x * beta))) / beta, beta)
  BACKWARD(softplus_backward, x, dy * logistic(x * beta), beta)
  // clang-format on
#undef FORWARD
#undef BACKWARD

  // ---- powers -----------------------------------------------------------------------------------

  // Squares, cubes and their gradients are so common (a variance, a squared error) that they do not
  // use pow(). The gradients multiply dy by one factor after the other, and by the constant last.
  // So every intermediate product lies between dy and the result, and overflows only if the result
  // does.
  template <class A>
  struct Square {
    RINGGRAD_HOST_DEVICE A operator()(A x) const { return x * x; }
  };
  template <class A>
  struct Cube {
    RINGGRAD_HOST_DEVICE A operator()(A x) const { return x * x * x; }
  };
  template <class A>
  struct Power {
    A exponent;
    RINGGRAD_HOST_DEVICE A operator()(A x) const { return std::pow(x, exponent); }
  };
  static void pow(Stream stream, const Tensor& y, const Tensor& x, double exponent) {
    visit_floating("pow", x.dtype(), [&]<class T>() {
      using A = Accumulator<T>;
      if (exponent == 2)
        Backend::template map<T>(stream, y, Square<A>{}, x);
      else if (exponent == 3)
        Backend::template map<T>(stream, y, Cube<A>{}, x);
      else
        Backend::template map<T>(stream, y, Power<A>{static_cast<A>(exponent)}, x);
    });
  }

  template <class A>
  struct Nothing {
    RINGGRAD_HOST_DEVICE A operator()(A, A) const { return 0; }
  };
  template <class A>
  struct SquareBackward {
    RINGGRAD_HOST_DEVICE A operator()(A dy, A x) const { return dy * x * 2; }
  };
  template <class A>
  struct CubeBackward {
    RINGGRAD_HOST_DEVICE A operator()(A dy, A x) const { return dy * x * x * 3; }
  };
  template <class A>
  struct ReciprocalBackward {
    RINGGRAD_HOST_DEVICE A operator()(A dy, A x) const { return -(dy / x / x); }
  };
  template <class A>
  struct PowerBackward {
    A exponent;
    A less_one;
    RINGGRAD_HOST_DEVICE A operator()(A dy, A x) const {
      return dy * std::pow(x, less_one) * exponent;
    }
  };
  static void pow_backward(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& x,
                           double exponent) {
    visit_floating("pow", x.dtype(), [&]<class T>() {
      using A = Accumulator<T>;
      if (exponent == 0)  // pow(0, -1) is infinite, and 0 · ∞ is NaN
        Backend::template map<T>(stream, dx, Nothing<A>{}, dy, x);
      else if (exponent == 2)
        Backend::template map<T>(stream, dx, SquareBackward<A>{}, dy, x);
      else if (exponent == 3)
        Backend::template map<T>(stream, dx, CubeBackward<A>{}, dy, x);
      else if (exponent == -1)
        Backend::template map<T>(stream, dx, ReciprocalBackward<A>{}, dy, x);
      else
        Backend::template map<T>(
            stream, dx, PowerBackward<A>{static_cast<A>(exponent), static_cast<A>(exponent - 1)},
            dy, x);
    });
  }

  // Losses of x and a target. Huber's divides every factor before it multiplies, so that nothing
  // overflows unless the result does.
  template <class A>
  struct Huber {
    A delta;
    A scale;
    RINGGRAD_HOST_DEVICE A operator()(A x, A t) const {
      const A d = x - t;
      return std::abs(d) > delta ? delta / scale * (std::abs(d) - delta / 2) : d / 2 * (d / scale);
    }
    RINGGRAD_HOST_DEVICE A operator()(A dy, A x, A t) const {
      const A d = x - t;
      return dy * ((d > delta ? delta : d < -delta ? -delta : d) / scale);
    }
  };
  template <class A>
  struct BceWithLogits {
    RINGGRAD_HOST_DEVICE A operator()(A x, A t) const {
      // 0 · ∞ is 0 here: certainty about the right answer costs nothing.
      const A part = x > 0 ? 1 - t : -t;
      return (part == 0 ? A(0) : part * x) + Math::log1p(Math::exp(-std::abs(x)));
    }
    RINGGRAD_HOST_DEVICE A operator()(A dy, A x, A t) const { return dy * (logistic(x) - t); }
  };
  template <class A>
  struct Bce {
    static RINGGRAD_HOST_DEVICE A limited(A logarithm) {
      return logarithm < -100 ? A(-100) : logarithm;
    }
    RINGGRAD_HOST_DEVICE A operator()(A x, A t) const {
      return -t * limited(Math::log(x)) - (1 - t) * limited(Math::log1p(-x));
    }
    RINGGRAD_HOST_DEVICE A operator()(A dy, A x, A t) const {
      const A slope = x * (1 - x);
      const A least = 1e-12F;  // PyTorch's float32 constant
      return dy * (x - t) / (slope < least ? least : slope);
    }
  };
#define WITH_TARGET(NAME, Formula, ...)                                                           \
  static void NAME(Stream stream, const Tensor& y, const Tensor& x,                               \
                   const Tensor& t __VA_OPT__(, DOUBLES(__VA_ARGS__))) {                          \
    visit_floating(#NAME, x.dtype(), [&]<class T>() {                                             \
      using A = Accumulator<T>;                                                                   \
      Backend::template map<T>(stream, y, Formula<A>{__VA_OPT__(NARROWED(__VA_ARGS__))}, x, t);   \
    });                                                                                           \
  }                                                                                               \
  static void NAME##_backward(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& x, \
                              const Tensor& t __VA_OPT__(, DOUBLES(__VA_ARGS__))) {               \
    visit_floating(#NAME, x.dtype(), [&]<class T>() {                                             \
      using A = Accumulator<T>;                                                                   \
      Backend::template map<T>(stream, dx, Formula<A>{__VA_OPT__(NARROWED(__VA_ARGS__))}, dy, x,  \
                               t);                                                                \
    });                                                                                           \
  }
  WITH_TARGET(huber, Huber, delta, scale)
  WITH_TARGET(bce_with_logits, BceWithLogits)
  WITH_TARGET(bce, Bce)
#undef WITH_TARGET
#undef DOUBLES
#undef NARROWED
};

// Calls REGISTER(name, Functions) for each of these kernels except pow, which a device may define
// itself.
#define RINGGRAD_FUNCTION_KERNELS(REGISTER) \
  REGISTER(exp, Functions)                  \
  REGISTER(log, Functions)                  \
  REGISTER(sqrt, Functions)                 \
  REGISTER(sqrt_backward, Functions)        \
  REGISTER(abs, Functions)                  \
  REGISTER(abs_backward, Functions)         \
  REGISTER(relu, Functions)                 \
  REGISTER(relu_backward, Functions)        \
  REGISTER(sigmoid, Functions)              \
  REGISTER(sigmoid_backward, Functions)     \
  REGISTER(tanh, Functions)                 \
  REGISTER(tanh_backward, Functions)        \
  REGISTER(silu, Functions)                 \
  REGISTER(silu_backward, Functions)        \
  REGISTER(gelu, Functions)                 \
  REGISTER(gelu_backward, Functions)        \
  REGISTER(mish, Functions)                 \
  REGISTER(mish_backward, Functions)        \
  REGISTER(gelu_tanh, Functions)            \
  REGISTER(gelu_tanh_backward, Functions)   \
  REGISTER(hardswish, Functions)            \
  REGISTER(hardswish_backward, Functions)   \
  REGISTER(floor, Functions)                \
  REGISTER(ceil, Functions)                 \
  REGISTER(round, Functions)                \
  REGISTER(trunc, Functions)                \
  REGISTER(sign, Functions)                 \
  REGISTER(pow_backward, Functions)         \
  REGISTER(clamp, Functions)                \
  REGISTER(clamp_backward, Functions)       \
  REGISTER(leaky_relu, Functions)           \
  REGISTER(leaky_relu_backward, Functions)  \
  REGISTER(log1p, Functions)                \
  REGISTER(log1p_backward, Functions)       \
  REGISTER(sin, Functions)                  \
  REGISTER(sin_backward, Functions)         \
  REGISTER(cos, Functions)                  \
  REGISTER(cos_backward, Functions)         \
  REGISTER(elu, Functions)                  \
  REGISTER(elu_backward, Functions)         \
  REGISTER(softplus, Functions)             \
  REGISTER(softplus_backward, Functions)    \
  REGISTER(huber, Functions)                \
  REGISTER(huber_backward, Functions)       \
  REGISTER(bce, Functions)                  \
  REGISTER(bce_backward, Functions)         \
  REGISTER(bce_with_logits, Functions)      \
  REGISTER(bce_with_logits_backward, Functions)

}  // namespace ringgrad
