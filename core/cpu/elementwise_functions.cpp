// The elementwise functions on the CPU: the formulas of core/kernels/elementwise_functions.h in the loops of
// elementwise.h.
#include "ringgrad/core/kernels/elementwise_functions.h"

#include "ringgrad/core/cpu/elementwise.h"
#include "ringgrad/core/cpu/vector_math.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

struct Cpu : CpuMaps {
  using Math = VectorMath;
};
using Functions = ElementwiseFunctions<Cpu>;

// c / x is made of x^-1: a division, which is a vector instruction and rounded once, where pow() would be a call.
void pow_cpu(Stream stream, const Tensor& y, const Tensor& x, double exponent) {
  if (exponent != -1) return Functions::pow(stream, y, x, exponent);
  visit_floating("pow", x.dtype(), [&]<class T>() {
    map<T>(
        stream, y, [](Accumulator<T> v) -> Accumulator<T> { return 1 / v; }, x);
  });
}

#define REGISTER(NAME, FORMULAS)              \
  constexpr auto NAME##_cpu = FORMULAS::NAME; \
  REGISTER_KERNEL(NAME, DeviceType::CPU, Provider::Native, NAME##_cpu);

RINGGRAD_FUNCTION_KERNELS(REGISTER)
REGISTER_KERNEL(pow, DeviceType::CPU, Provider::Native, pow_cpu);

}  // namespace
}  // namespace ringgrad::cpu
