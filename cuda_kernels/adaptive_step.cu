// RMSprop, Adagrad and Adadelta: the formulas of core/kernels/adaptive_steps.h.
//
// Mapping: one thread per element, in strides of the grid. Learning rate and step are read on the
// device.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/adaptive_steps.h"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

template <class T>
struct Arrays {
  T* of[3];  // null if the array does not exist
};

template <class T, class F, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    descend_kernel(int64_t n, T* param, Arrays<T> arrays, const T* grad, const double* lr,
                   const int64_t* step, double lr_decay, A weight_decay, F f) {
  if (*lr != *lr) return;
  const A rate = static_cast<A>(*lr / (1 + static_cast<double>(*step) * lr_decay));
  for (int64_t i = thread_number(); i < n; i += thread_count()) {
    A kept[3];
    for (int k = 0; k < 3; ++k) kept[k] = arrays.of[k] ? widen(arrays.of[k][i]) : A(0);
    const A value = widen(param[i]);
    param[i] = narrow<T>(
        value - rate * f(widen(grad[i]) + weight_decay * value, kept[0], kept[1], kept[2]));
    for (int k = 0; k < 3; ++k)
      if (arrays.of[k]) arrays.of[k][i] = narrow<T>(kept[k]);
  }
}

struct Cuda {
  template <class T, class F>
  static void descend(Stream stream, const Tensor& param, const Tensor& a, const Tensor& b,
                      const Tensor& c, const Tensor& grad, const Tensor& lr, const Tensor& step,
                      double lr_decay, double weight_decay, F f) {
    const auto flat = [&](const Tensor& x) {
      ASSERT(!x.defined() || (x.is_contiguous() && x.numel() == param.numel()));
      return optional_data<T>(x);
    };
    launch_elements(stream, param.numel(), descend_kernel<Element<T>, F>, param.numel(),
                    flat(param), Arrays<Element<T>>{{flat(a), flat(b), flat(c)}}, flat(grad),
                    lr.data<double>(), step.data<int64_t>(), lr_decay,
                    static_cast<ComputeOf<T>>(weight_decay), f);
  }
};
using Steps = AdaptiveSteps<Cuda>;

#define REGISTER(NAME, FORMULAS)               \
  constexpr auto NAME##_cuda = FORMULAS::NAME; \
  REGISTER_KERNEL(NAME, CUDA, Native, NAME##_cuda);
RINGGRAD_ADAPTIVE_STEP_KERNELS(REGISTER)

}  // namespace
}  // namespace ringgrad::cuda
