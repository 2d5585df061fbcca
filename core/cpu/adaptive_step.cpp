// RMSprop, Adagrad and Adadelta on the CPU: the formulas of core/kernels/adaptive_steps.h in one
// loop.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/adaptive_steps.h"

namespace ringgrad::cpu {
namespace {

struct Cpu {
  template <class T, class F>
  static void descend(Stream stream, const Tensor& param, const Tensor& a, const Tensor& b,
                      const Tensor& c, const Tensor& grad, const Tensor& lr, const Tensor& step,
                      double lr_decay, double weight_decay, F f) {
    using A = Accumulator<T>;
    if (std::isnan(*lr.data<double>())) return;
    const auto flat = [&](const Tensor& x) {
      ASSERT(!x.defined() || (x.is_contiguous() && x.numel() == param.numel()));
      return x.defined() ? x.data<T>() : nullptr;
    };
    const A decay = static_cast<A>(weight_decay);
    const A rate = static_cast<A>(*lr.data<double>() /
                                  (1 + static_cast<double>(*step.data<int64_t>()) * lr_decay));
    T* const p = flat(param);
    T* const arrays[] = {flat(a), flat(b), flat(c)};
    const T* const g = flat(grad);
    parallel_for(stream, param.numel(), kUnitElements / 4, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        A kept[3];
        for (int k = 0; k < 3; ++k) kept[k] = arrays[k] ? static_cast<A>(arrays[k][i]) : A(0);
        const A value = static_cast<A>(p[i]);
        p[i] = static_cast<T>(
            value - rate * f(static_cast<A>(g[i]) + decay * value, kept[0], kept[1], kept[2]));
        for (int k = 0; k < 3; ++k)
          if (arrays[k]) arrays[k][i] = static_cast<T>(kept[k]);
      }
    });
  }
};
using Steps = AdaptiveSteps<Cpu>;

#define REGISTER(NAME, FORMULAS)              \
  constexpr auto NAME##_cpu = FORMULAS::NAME; \
  REGISTER_KERNEL(NAME, CPU, Native, NAME##_cpu);
RINGGRAD_ADAPTIVE_STEP_KERNELS(REGISTER)

}  // namespace
}  // namespace ringgrad::cpu
