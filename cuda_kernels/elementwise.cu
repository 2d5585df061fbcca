// The elementwise kernels: the formulas of core/kernels/elementwise_*.h. common/map.cuh maps
// elements to threads.
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/elementwise_arithmetic.h"
#include "ringgrad/core/kernels/elementwise_functions.h"
#include "ringgrad/cuda_kernels/common/map.cuh"

namespace ringgrad::cuda {
namespace {

struct Cuda {
  using Math = StandardMath;
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
void fill_cuda(Stream stream, const Tensor& x, Scalar value) {
  visit_dtype("fill", x.dtype(), [&]<class T>() {
    // The host rounds to T, exactly as on the CPU.
    const T rounded = value.to<T>();
    map<T>(stream, x, Constant<ComputeOf<T>>{static_cast<ComputeOf<T>>(rounded)});
  });
}

#define REGISTER(NAME, FORMULAS)               \
  constexpr auto NAME##_cuda = FORMULAS::NAME; \
  REGISTER_KERNEL(NAME, CUDA, Native, NAME##_cuda);

RINGGRAD_ARITHMETIC_KERNELS(REGISTER)
RINGGRAD_FUNCTION_KERNELS(REGISTER)
REGISTER_KERNEL(fill, CUDA, Native, fill_cuda);
REGISTER(pow, Functions)

}  // namespace
}  // namespace ringgrad::cuda
