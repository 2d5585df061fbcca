// The steps of RMSprop, Adagrad and Adadelta from core/kernels.h, written once for all devices.
//
// A device's Backend provides descend<T>(stream, param, a, b, c, grad, lr, step, lr_decay,
// weight_decay, f). It computes
//   param[i] -= lr / (1 + step lr_decay) f(grad[i] + weight_decay param[i], a[i], b[i], c[i])
// f also updates the arrays a, b, c that are defined. If lr is NaN, nothing changes.
#pragma once

#include <cmath>

#include "ringgrad/core/base/number.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {

template <class Backend>
struct AdaptiveSteps {
  template <class A>
  struct Rmsprop {
    A alpha;
    A fresh;
    A eps;
    A momentum;
    bool centered;
    RINGGRAD_HOST_DEVICE A operator()(A g, A& v, A& m, A& buffer) const {
      v = alpha * v + fresh * g * g;
      if (centered) m = alpha * m + fresh * g;
      // The variance of equal gradients is 0. Rounding of v or m may make the difference negative,
      // which has no root. NaN stays NaN.
      const A variance = centered ? v - m * m : v;
      const A direction = g / (std::sqrt(variance < 0 ? A{0} : variance) + eps);
      if (momentum == 0) return direction;
      return buffer = momentum * buffer + direction;
    }
  };
  static void rmsprop_step(Stream stream, const Tensor& param, const Tensor& v, const Tensor& m,
                           const Tensor& buffer, const Tensor& grad, const Tensor& lr,
                           const Tensor& step, const kernels::RmspropStepOptions& o) {
    visit_floating("rmsprop_step", param.dtype(), [&]<class T>() {
      using A = Accumulator<T>;
      const Rmsprop<A> formula{static_cast<A>(o.alpha), static_cast<A>(1 - o.alpha),
                               static_cast<A>(o.eps), static_cast<A>(o.momentum), o.centered};
      Backend::template descend<T>(stream, param, v, m, buffer, grad, lr, step, 0, o.weight_decay,
                                   formula);
    });
  }

  template <class A>
  struct Adagrad {
    A initial;
    A eps;
    RINGGRAD_HOST_DEVICE A operator()(A g, A& sum, A&, A&) const {
      sum += g * g;
      return g / (std::sqrt(initial + sum) + eps);
    }
  };
  static void adagrad_step(Stream stream, const Tensor& param, const Tensor& sum,
                           const Tensor& grad, const Tensor& lr, const Tensor& step,
                           const kernels::AdagradStepOptions& o) {
    visit_floating("adagrad_step", param.dtype(), [&]<class T>() {
      using A = Accumulator<T>;
      const Adagrad<A> formula{static_cast<A>(o.initial), static_cast<A>(o.eps)};
      Backend::template descend<T>(stream, param, sum, {}, {}, grad, lr, step, o.lr_decay,
                                   o.weight_decay, formula);
    });
  }

  template <class A>
  struct Adadelta {
    A rho;
    A fresh;
    A eps;
    RINGGRAD_HOST_DEVICE A operator()(A g, A& v, A& u, A&) const {
      v = rho * v + fresh * g * g;
      const A direction = std::sqrt(u + eps) / std::sqrt(v + eps) * g;
      u = rho * u + fresh * direction * direction;
      return direction;
    }
  };
  static void adadelta_step(Stream stream, const Tensor& param, const Tensor& v, const Tensor& u,
                            const Tensor& grad, const Tensor& lr, const Tensor& step,
                            const kernels::AdadeltaStepOptions& o) {
    visit_floating("adadelta_step", param.dtype(), [&]<class T>() {
      using A = Accumulator<T>;
      const Adadelta<A> formula{static_cast<A>(o.rho), static_cast<A>(1 - o.rho),
                                static_cast<A>(o.eps)};
      Backend::template descend<T>(stream, param, v, u, {}, grad, lr, step, 0, o.weight_decay,
                                   formula);
    });
  }
};

// Calls REGISTER(name, Steps) for each of these kernels.
#define RINGGRAD_ADAPTIVE_STEP_KERNELS(REGISTER) \
  REGISTER(rmsprop_step, Steps)                  \
  REGISTER(adagrad_step, Steps)                  \
  REGISTER(adadelta_step, Steps)

}  // namespace ringgrad
