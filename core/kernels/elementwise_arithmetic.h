// The elementwise arithmetic of core/kernels.h, written once for all devices.
//
// A device's Backend provides map<T>(stream, y, f, x…), which computes y[i] = f(x[i]…) with its own
// loops or threads. map_to<Out, T> does the same for a y of another type. f takes and returns
// Accumulator<T>, which is float for the 16-bit types.
#pragma once

#include "ringgrad/core/base/number.h"
#include "ringgrad/core/kernels/numbers.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

template <class Backend>
struct ElementwiseArithmetic {
  // Sums and products use an unsigned type, so that integers that do not fit wrap.
  template <class A>
  struct Affine {
    Wrapping<A> scale;
    Wrapping<A> shift;
    RINGGRAD_HOST_DEVICE A operator()(A x) const {
      return static_cast<A>(scale * Wrapping<A>(x) + shift);
    }
  };
  static void affine(Stream stream, const Tensor& y, const Tensor& x, Scalar scale, Scalar shift) {
    visit_number("affine", x.dtype(), [&]<class T>() {
      using A = Accumulator<T>;
      Backend::template map<T>(stream, y,
                               Affine<A>{scale.to<Wrapping<A>>(), shift.to<Wrapping<A>>()}, x);
    });
  }

  template <class A>
  struct Axpby {
    Wrapping<A> alpha;
    Wrapping<A> beta;
    RINGGRAD_HOST_DEVICE A operator()(A x, A y) const {
      return static_cast<A>(alpha * Wrapping<A>(x) + beta * Wrapping<A>(y));
    }
  };
  static void axpby(Stream stream, const Tensor& y, const Tensor& x, Scalar alpha, Scalar beta) {
    visit_number("axpby", x.dtype(), [&]<class T>() {
      using A = Accumulator<T>;
      Backend::template map<T>(stream, y, Axpby<A>{alpha.to<Wrapping<A>>(), beta.to<Wrapping<A>>()},
                               x, y);
    });
  }

#define BINARY(NAME, Formula)                                                          \
  static void NAME(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) { \
    visit_number(#NAME, y.dtype(), [&]<class T>() {                                    \
      Backend::template map<T>(stream, y, Formula<Accumulator<T>>{}, a, b);            \
    });                                                                                \
  }

  template <class A>
  struct Sum {
    RINGGRAD_HOST_DEVICE A operator()(A a, A b) const {
      return static_cast<A>(Wrapping<A>(a) + Wrapping<A>(b));
    }
  };
  BINARY(add, Sum)

  template <class A>
  struct Difference {
    RINGGRAD_HOST_DEVICE A operator()(A a, A b) const {
      return static_cast<A>(Wrapping<A>(a) - Wrapping<A>(b));
    }
  };
  BINARY(sub, Difference)

  template <class A>
  struct Product {
    RINGGRAD_HOST_DEVICE A operator()(A a, A b) const {
      return static_cast<A>(Wrapping<A>(a) * Wrapping<A>(b));
    }
  };
  BINARY(mul, Product)

  template <class A>
  struct Larger {
    RINGGRAD_HOST_DEVICE A operator()(A a, A b) const { return a > b || a != a ? a : b; }
  };
  BINARY(maximum, Larger)

  template <class A>
  struct Smaller {
    RINGGRAD_HOST_DEVICE A operator()(A a, A b) const { return a < b || a != a ? a : b; }
  };
  BINARY(minimum, Smaller)
#undef BINARY

  template <class A>
  struct Quotient {
    RINGGRAD_HOST_DEVICE A operator()(A a, A b) const { return a / b; }
  };
  static void div(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) {
    visit_floating("div", y.dtype(), [&]<class T>() {
      Backend::template map<T>(stream, y, Quotient<Accumulator<T>>{}, a, b);
    });
  }

  // Computes the gradient of a / b with respect to b. It is computed in double for float32, because
  // 1 / b or a / b may leave float32's range although the gradient is within it.
  template <class A>
  struct QuotientSlope {
    RINGGRAD_HOST_DEVICE A operator()(A dy, A a, A b) const {
      if constexpr (std::is_same_v<A, float>) {
        const double wide = b;
        return static_cast<float>(-static_cast<double>(dy) * static_cast<double>(a) /
                                  (wide * wide));
      } else {
        return -dy * (a / b / b);
      }
    }
  };
  static void div_backward(Stream stream, const Tensor& db, const Tensor& dy, const Tensor& a,
                           const Tensor& b) {
    visit_floating("div_backward", dy.dtype(), [&]<class T>() {
      Backend::template map<T>(stream, db, QuotientSlope<Accumulator<T>>{}, dy, a, b);
    });
  }

  // Returns the part of dy that goes to `mine`: all of it if `mine` is the larger (kLarger) or the
  // smaller of the two, half if they are equal.
  template <class A, bool kLarger>
  struct Share {
    RINGGRAD_HOST_DEVICE A operator()(A dy, A mine, A other) const {
      return (kLarger ? mine < other : mine > other) ? A(0) : mine == other ? dy / 2 : dy;
    }
  };
#define SHARES(NAME, kLarger)                                                           \
  static void NAME(Stream stream, const Tensor& da, const Tensor& db, const Tensor& dy, \
                   const Tensor& a, const Tensor& b) {                                  \
    visit_floating(#NAME, dy.dtype(), [&]<class T>() {                                  \
      Backend::template map<T>(stream, da, Share<Accumulator<T>, kLarger>{}, dy, a, b); \
      Backend::template map<T>(stream, db, Share<Accumulator<T>, kLarger>{}, dy, b, a); \
    });                                                                                 \
  }
  SHARES(maximum_backward, true)
  SHARES(minimum_backward, false)
#undef SHARES

  template <class A>
  struct Leaky {  // y = x or w x by x's sign; dx likewise from dy
    RINGGRAD_HOST_DEVICE A operator()(A value, A x, A w) const { return x > 0 ? value : w * value; }
  };
  template <class A>
  struct LeakySlope {
    RINGGRAD_HOST_DEVICE A operator()(A dy, A x) const { return x > 0 ? A(0) : x * dy; }
  };
  static void prelu(Stream stream, const Tensor& y, const Tensor& x, const Tensor& w) {
    visit_floating("prelu", y.dtype(), [&]<class T>() {
      Backend::template map<T>(stream, y, Leaky<Accumulator<T>>{}, x, x, w);
    });
  }
  static void prelu_backward(Stream stream, const Tensor& dx, const Tensor& dw, const Tensor& dy,
                             const Tensor& x, const Tensor& w) {
    visit_floating("prelu_backward", dy.dtype(), [&]<class T>() {
      Backend::template map<T>(stream, dx, Leaky<Accumulator<T>>{}, dy, x, w);
      Backend::template map<T>(stream, dw, LeakySlope<Accumulator<T>>{}, dy, x);
    });
  }

#define COMPARISON(NAME, OPERATOR)                                                          \
  template <class A>                                                                        \
  struct NAME##_formula {                                                                   \
    RINGGRAD_HOST_DEVICE bool operator()(A a, A b) const { return a OPERATOR b; }           \
  };                                                                                        \
  static void NAME(Stream stream, const Tensor& y, const Tensor& a, const Tensor& b) {      \
    visit_dtype(#NAME, a.dtype(), [&]<class T>() {                                          \
      Backend::template map_to<bool, T>(stream, y, NAME##_formula<Accumulator<T>>{}, a, b); \
    });                                                                                     \
  }
  COMPARISON(equal, ==)
  COMPARISON(less, <)
  COMPARISON(less_equal, <=)
#undef COMPARISON

  template <class A>
  struct Choice {
    RINGGRAD_HOST_DEVICE A operator()(A c, A a, A b) const { return c != A(0) ? a : b; }
  };
  static void where(Stream stream, const Tensor& y, const Tensor& c, const Tensor& a,
                    const Tensor& b) {
    visit_dtype("where", y.dtype(), [&]<class T>() {
      Backend::template map<T>(stream, y, Choice<Accumulator<T>>{}, c, a, b);
    });
  }
};

// Calls REGISTER(name, Arithmetic) for each of these kernels. A device registers its
// ElementwiseArithmetic with it.
#define RINGGRAD_ARITHMETIC_KERNELS(REGISTER) \
  REGISTER(affine, Arithmetic)                \
  REGISTER(axpby, Arithmetic)                 \
  REGISTER(add, Arithmetic)                   \
  REGISTER(sub, Arithmetic)                   \
  REGISTER(mul, Arithmetic)                   \
  REGISTER(div, Arithmetic)                   \
  REGISTER(div_backward, Arithmetic)          \
  REGISTER(maximum, Arithmetic)               \
  REGISTER(maximum_backward, Arithmetic)      \
  REGISTER(minimum, Arithmetic)               \
  REGISTER(minimum_backward, Arithmetic)      \
  REGISTER(prelu, Arithmetic)                 \
  REGISTER(prelu_backward, Arithmetic)        \
  REGISTER(equal, Arithmetic)                 \
  REGISTER(less, Arithmetic)                  \
  REGISTER(less_equal, Arithmetic)            \
  REGISTER(where, Arithmetic)

}  // namespace ringgrad
