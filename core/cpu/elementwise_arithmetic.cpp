// Elementwise arithmetic on the CPU: the formulas of core/kernels/elementwise_arithmetic.h in the
// loops of elementwise.h.
#include "ringgrad/core/kernels/elementwise_arithmetic.h"

#include "ringgrad/core/cpu/elementwise.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

using Arithmetic = ElementwiseArithmetic<CpuMaps>;

void fill_cpu(Stream stream, const Tensor& x, Scalar value) {
  visit_dtype("fill", x.dtype(),
              [&]<class T>() { CpuMaps::map<T>(stream, x, [v = value.to<T>()] { return v; }); });
}

#define REGISTER(NAME, FORMULAS)              \
  constexpr auto NAME##_cpu = FORMULAS::NAME; \
  REGISTER_KERNEL(NAME, CPU, Native, NAME##_cpu);

RINGGRAD_ARITHMETIC_KERNELS(REGISTER)
REGISTER_KERNEL(fill, CPU, Native, fill_cpu);

}  // namespace
}  // namespace ringgrad::cpu
