// The elementwise kernels: the formulas of core/kernels/elementwise_*.h; common/map.cuh maps elements to threads.
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/elementwise_arithmetic.h"
#include "ringgrad/core/kernels/elementwise_functions.h"
#include "ringgrad/cuda_kernels/common/map.cuh"

namespace ringgrad::cuda {
namespace {

struct Cuda {
  template <class T, class F, class... Inputs>
  static void map(Stream stream, const Tensor& y, F f, const Inputs&... x) {
    cuda::map<T>(stream, y, f, x...);
  }
  template <class Out, class T, class F, class... Inputs>
  static void map_to(Stream stream, const Tensor& y, F f, const Inputs&... x) {
    cuda::map_to<Out, T>(stream, y, f, x...);
  }
};
using Arithmetic = ElementwiseArithmetic<Cuda>;
using Functions = ElementwiseFunctions<Cuda>;

template <class A>
struct Constant {
  A value;
  __device__ A operator()() const { return value; }
};
void fill(Stream stream, const Tensor& x, double value) {
  visit_dtype("fill", x.dtype(), [&]<class T>() {
    // Rounded to T on the host, exactly as on the CPU.
    const T rounded = number<T>(value);
    map<T>(stream, x, Constant<ComputeOf<T>>{static_cast<ComputeOf<T>>(rounded)});
  });
}

#define REGISTER(NAME, FUNCTION)         \
  constexpr auto NAME##_cuda = FUNCTION; \
  REGISTER_KERNEL(NAME, DeviceType::CUDA, Provider::Native, NAME##_cuda);

REGISTER(fill, fill)
REGISTER(pow, Functions::pow)
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
}  // namespace ringgrad::cuda
