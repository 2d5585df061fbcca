// Elementwise functions on the CPU: the formulas of core/kernels/elementwise_functions.h in the
// loops of elementwise.h.
#include "ringgrad/core/kernels/elementwise_functions.h"

#include <atomic>

#include "ringgrad/core/cpu/elementwise.h"
#include "ringgrad/core/cpu/vector_math.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

struct Cpu : CpuMaps {
  using Math = VectorMath;
};
using Vectors = ElementwiseFunctions<Cpu>;

// The same numbers within the range of fast_sin and fast_cos, and the C library's beyond it. The
// branch prevents vectorisation.
struct MathOfAnyAngle : VectorMath {
  template <class A>
  static A sin(A x) {
    return std::abs(x) > kMostAngle ? std::sin(x) : fast_sin(x);
  }
  template <class A>
  static A cos(A x) {
    return std::abs(x) > kMostAngle ? std::cos(x) : fast_cos(x);
  }
};
struct CpuOfAnyAngle : CpuMaps {
  using Math = MathOfAnyAngle;
};
using OfAnyAngle = ElementwiseFunctions<CpuOfAnyAngle>;

// Checking for such an angle takes a tenth of the time of the sines.
bool has_large_angle(Stream stream, const Tensor& x) {
  const LoopPlan plan = plan_loops({&x});
  std::atomic<bool> found = false;
  if (plan.dims == 0) return false;
  visit_floating("sin", x.dtype(), [&]<class T>() {
    parallel_for(stream, plan.numel, kElementwiseGrain, [&](int64_t begin, int64_t end) {
      plan.for_each_run<1>(begin, end, [&](const auto& offsets, int64_t n) {
        const T* const from = x.data<T>() + offsets[0];
        int large = 0;
        for (int64_t i = 0, stride = plan.inner_stride(0); i < n; ++i)
          large |= std::abs(static_cast<Accumulator<T>>(from[i * stride])) > kMostAngle;
        if (large) found.store(true, std::memory_order_relaxed);
      });
    });
  });
  return found;
}

struct Functions : Vectors {
#define OF_ANGLES(NAME)                                                                    \
  static void NAME(Stream stream, const Tensor& y, const Tensor& x) {                      \
    (has_large_angle(stream, x) ? OfAnyAngle::NAME : Vectors::NAME)(stream, y, x);         \
  }                                                                                        \
  static void NAME##_backward(Stream stream, const Tensor& dx, const Tensor& dy,           \
                              const Tensor& x) {                                           \
    (has_large_angle(stream, x) ? OfAnyAngle::NAME##_backward : Vectors::NAME##_backward)( \
        stream, dx, dy, x);                                                                \
  }
  OF_ANGLES(sin)
  OF_ANGLES(cos)
#undef OF_ANGLES
};

// c / x uses x^-1. A division is a vector instruction and rounds once, while pow() would be a call.
void pow_cpu(Stream stream, const Tensor& y, const Tensor& x, double exponent) {
  if (exponent != -1) return Functions::pow(stream, y, x, exponent);
  visit_floating("pow", x.dtype(), [&]<class T>() {
    CpuMaps::map<T>(
        stream, y, [](Accumulator<T> v) -> Accumulator<T> { return 1 / v; }, x);
  });
}

#define REGISTER(NAME, FORMULAS)              \
  constexpr auto NAME##_cpu = FORMULAS::NAME; \
  REGISTER_KERNEL(NAME, CPU, Native, NAME##_cpu);

RINGGRAD_FUNCTION_KERNELS(REGISTER)
REGISTER_KERNEL(pow, CPU, Native, pow_cpu);

}  // namespace
}  // namespace ringgrad::cpu
