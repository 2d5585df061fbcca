// Optimizer steps over flat arrays on the CPU: one pass that reads and writes each number once.
#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

// Returns the data of a flat array, which may be undefined.
template <class T>
T* flat(const Tensor& x, const Tensor& param) {
  if (!x.defined()) return nullptr;
  ASSERT(x.is_contiguous() && x.numel() == param.numel());
  return x.data<T>();
}

// The loop is a separate function that takes everything by value. The compiler must assume that the
// stores overwrite what a closure holds by reference, and would not vectorise.
template <class T, class Update, class A = Accumulator<T>>
void descend(T* p, const T* g, int64_t begin, int64_t end, A rate, A decay, Update update) {
  for (int64_t i = begin; i < end; ++i) {
    const A value = static_cast<A>(p[i]);
    p[i] = static_cast<T>(value - rate * update(i, static_cast<A>(g[i]) + decay * value));
  }
}

void sgd_step_cpu(Stream stream, const Tensor& param, const Tensor& buffer, const Tensor& grad,
                  const Tensor& lr, const Tensor& step, const kernels::SgdStepOptions& o) {
  ASSERT(buffer.defined() || o.momentum == 0);
  if (std::isnan(*lr.data<double>())) return;
  visit_floating("sgd_step", param.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    T* const p = flat<T>(param, param);
    T* const v = flat<T>(buffer, param);
    const T* const g = flat<T>(grad, param);
    const A rate = static_cast<A>(*lr.data<double>());
    const A decay = static_cast<A>(o.weight_decay);
    const A momentum = static_cast<A>(o.momentum);
    const A fresh = static_cast<A>(1 - o.dampening);
    const int64_t n = param.numel();
    const bool first = *step.data<int64_t>() == 0;
    // The variant of a step is chosen outside the loop. update(i, gradient) returns the direction.
    const auto run = [=](auto update) {
      parallel_for(stream, n, kUnitElements, [=](int64_t begin, int64_t end) {
        descend(p, g, begin, end, rate, decay, update);
      });
    };
    if (o.momentum == 0) {
      run([](int64_t, A gradient) { return gradient; });
      return;
    }
    const auto with_momentum = [&](auto next) {
      if (o.nesterov)
        run([=](int64_t i, A gradient) {
          const A velocity = next(i, gradient);
          v[i] = static_cast<T>(velocity);
          return gradient + momentum * velocity;
        });
      else
        run([=](int64_t i, A gradient) {
          const A velocity = next(i, gradient);
          v[i] = static_cast<T>(velocity);
          return velocity;
        });
    };
    if (first)  // the buffer is not read: it may be uninitialised
      with_momentum([](int64_t, A gradient) { return gradient; });
    else
      with_momentum([=](int64_t i, A gradient) {
        return momentum * static_cast<A>(v[i]) + fresh * gradient;
      });
  });
}

template <class A>
struct AdamFactors {
  A beta1;
  A fresh1;
  A beta2;
  A fresh2;
  A eps;
  A rate;
  A correction;
  A decay;
  A keep;
};

template <bool amsgrad, class T, class A = Accumulator<T>>
void adam_range(T* p, T* m, T* v, T* max_v, const T* g, int64_t begin, int64_t end,
                AdamFactors<A> f) {
  for (int64_t i = begin; i < end; ++i) {
    const A value = static_cast<A>(p[i]);
    const A gradient = static_cast<A>(g[i]) + f.decay * value;
    const A mean = f.beta1 * static_cast<A>(m[i]) + f.fresh1 * gradient;
    A square = f.beta2 * static_cast<A>(v[i]) + f.fresh2 * gradient * gradient;
    m[i] = static_cast<T>(mean);
    v[i] = static_cast<T>(square);
    if constexpr (amsgrad) {
      const A largest = static_cast<A>(max_v[i]);
      square = square < largest ? largest : square;  // NaN of a new square stays
      max_v[i] = static_cast<T>(square);
    }
    p[i] =
        static_cast<T>(f.keep * value - f.rate * mean / (std::sqrt(square) * f.correction + f.eps));
  }
}

void adam_step_cpu(Stream stream, const Tensor& param, const Tensor& m, const Tensor& v,
                   const Tensor& max_v, const Tensor& grad, const Tensor& lr, const Tensor& step,
                   const kernels::AdamStepOptions& o) {
  if (std::isnan(*lr.data<double>())) return;
  visit_floating("adam_step", param.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const double rate = *lr.data<double>();
    const double t = static_cast<double>(*step.data<int64_t>() + 1);
    const AdamFactors<A> factors{
        .beta1 = static_cast<A>(o.beta1),
        .fresh1 = static_cast<A>(1 - o.beta1),
        .beta2 = static_cast<A>(o.beta2),
        .fresh2 = static_cast<A>(1 - o.beta2),
        .eps = static_cast<A>(o.eps),
        // The bias corrections are moved out of the loop: m / (1 - β1^t) into the rate, and v / (1
        // - β2^t) into one factor.
        .rate = static_cast<A>(rate / (1 - std::pow(o.beta1, t))),
        .correction = static_cast<A>(1 / std::sqrt(1 - std::pow(o.beta2, t))),
        .decay = static_cast<A>(o.decoupled ? 0 : o.weight_decay),
        .keep = static_cast<A>(o.decoupled ? 1 - rate * o.weight_decay : 1),
    };
    T* const p = flat<T>(param, param);
    T* const first_moment = flat<T>(m, param);
    T* const second_moment = flat<T>(v, param);
    T* const largest = flat<T>(max_v, param);
    const T* const g = flat<T>(grad, param);
    const auto range = largest ? adam_range<true, T> : adam_range<false, T>;
    parallel_for(stream, param.numel(), kUnitElements, [=](int64_t begin, int64_t end) {
      range(p, first_moment, second_moment, largest, g, begin, end, factors);
    });
  });
}

REGISTER_KERNEL(sgd_step, CPU, Native, sgd_step_cpu);
REGISTER_KERNEL(adam_step, CPU, Native, adam_step_cpu);

}  // namespace
}  // namespace ringgrad::cpu
