// The elementwise kernels on the CPU: the formulas of core/kernels/elementwise_*.h in the loops of elementwise.h.
#include "ringgrad/core/cpu/elementwise.h"

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

void fill(Stream stream, const Tensor& x, double value) {
  visit_dtype("fill", x.dtype(), [&]<class T>() { map<T>(stream, x, [v = number<T>(value)] { return v; }); });
}

// c / x is made of x^-1: a division, which is a vector instruction and rounded once, where pow() would be a call.
void pow(Stream stream, const Tensor& y, const Tensor& x, double exponent) {
  if (exponent != -1) return Functions::pow(stream, y, x, exponent);
  visit_floating("pow", x.dtype(), [&]<class T>() {
    map<T>(
        stream, y, [](Accumulator<T> v) -> Accumulator<T> { return 1 / v; }, x);
  });
}

#define REGISTER(NAME, FUNCTION)        \
  constexpr auto NAME##_cpu = FUNCTION; \
  REGISTER_KERNEL(NAME, DeviceType::CPU, Provider::Native, NAME##_cpu);

REGISTER(fill, fill)
REGISTER(pow, pow)
REGISTER(affine, Arithmetic::affine)
REGISTER(axpby, Arithmetic::axpby)
REGISTER(add, Arithmetic::add)
REGISTER(sub, Arithmetic::sub)
REGISTER(mul, Arithmetic::mul)
REGISTER(div, Arithmetic::div)
REGISTER(maximum, Arithmetic::maximum)
REGISTER(maximum_backward, Arithmetic::maximum_backward)
REGISTER(equal, Arithmetic::equal)
REGISTER(exp, Functions::exp)
REGISTER(log, Functions::log)
REGISTER(sqrt, Functions::sqrt)
REGISTER(sqrt_backward, Functions::sqrt_backward)
REGISTER(abs, Functions::abs)
REGISTER(abs_backward, Functions::abs_backward)
REGISTER(relu, Functions::relu)
REGISTER(relu_backward, Functions::relu_backward)
REGISTER(sigmoid, Functions::sigmoid)
REGISTER(sigmoid_backward, Functions::sigmoid_backward)
REGISTER(tanh, Functions::tanh)
REGISTER(tanh_backward, Functions::tanh_backward)
REGISTER(silu, Functions::silu)
REGISTER(silu_backward, Functions::silu_backward)
REGISTER(gelu, Functions::gelu)
REGISTER(gelu_backward, Functions::gelu_backward)
REGISTER(pow_backward, Functions::pow_backward)
REGISTER(clamp, Functions::clamp)
REGISTER(clamp_backward, Functions::clamp_backward)
REGISTER(leaky_relu, Functions::leaky_relu)
REGISTER(leaky_relu_backward, Functions::leaky_relu_backward)
REGISTER(bce_with_logits, Functions::bce_with_logits)
REGISTER(bce_with_logits_backward, Functions::bce_with_logits_backward)

}  // namespace
}  // namespace ringgrad::cpu
