// The elementwise kernels on the CPU: the formulas of core/kernels/elementwise_*.h in the loops of elementwise.h.
#include "ringgrad/core/cpu/elementwise.h"

#include "ringgrad/core/cpu/vector_math.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/elementwise_arithmetic.h"
#include "ringgrad/core/kernels/elementwise_functions.h"

namespace ringgrad::cpu {
namespace {

struct Cpu {
  template <class T, class F, class... Inputs>
  static void map(Stream stream, const Tensor& y, F f, const Inputs&... x) {
    cpu::map<T>(stream, y, f, x...);
  }
  template <class Out, class T, class F, class... Inputs>
  static void map_to(Stream stream, const Tensor& y, F f, const Inputs&... x) {
    cpu::map_to<Out, T>(stream, y, f, x...);
  }
};
using Arithmetic = ElementwiseArithmetic<Cpu>;
using Functions = ElementwiseFunctions<Cpu>;

void fill_cpu(Stream stream, const Tensor& x, double value) {
  visit_dtype("fill", x.dtype(), [&]<class T>() { map<T>(stream, x, [v = number<T>(value)] { return v; }); });
}

// c / x is made of x^-1: a division, which is a vector instruction and rounded once, where pow() would be a call.
void pow_cpu(Stream stream, const Tensor& y, const Tensor& x, double exponent) {
  if (exponent != -1) return Functions::pow(stream, y, x, exponent);
  visit_floating("pow", x.dtype(), [&]<class T>() {
    map<T>(
        stream, y, [](Accumulator<T> v) -> Accumulator<T> { return 1 / v; }, x);
  });
}

void tanh_cpu(Stream stream, const Tensor& y, const Tensor& x) {
  visit_floating("tanh", x.dtype(), [&]<class T>() {
    map<T>(
        stream, y, [](Accumulator<T> v) -> Accumulator<T> { return fast_tanh(v); }, x);
  });
}

#define REGISTER(NAME, FORMULAS)              \
  constexpr auto NAME##_cpu = FORMULAS::NAME; \
  REGISTER_KERNEL(NAME, DeviceType::CPU, Provider::Native, NAME##_cpu);

RINGGRAD_ARITHMETIC_KERNELS(REGISTER)
RINGGRAD_FUNCTION_KERNELS(REGISTER)
REGISTER_KERNEL(fill, DeviceType::CPU, Provider::Native, fill_cpu);
REGISTER_KERNEL(pow, DeviceType::CPU, Provider::Native, pow_cpu);
REGISTER_KERNEL(tanh, DeviceType::CPU, Provider::Native, tanh_cpu);

}  // namespace
}  // namespace ringgrad::cpu
