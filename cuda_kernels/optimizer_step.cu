// Optimizer steps over flat arrays: a whole arena of parameters in one launch.
//
// Mapping: one thread per element, in strides of the grid. The learning rate and the number of
// steps are read on the device, so that a captured graph follows a schedule.
#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

template <class A>
struct Sgd {
  A momentum;
  A fresh;
  A weight_decay;
  bool nesterov;
};

template <class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    sgd_kernel(int64_t n, T* param, T* buffer, const T* grad, const double* lr, const int64_t* step,
               Sgd<A> o) {
  const A rate = static_cast<A>(*lr);
  if (rate != rate) return;
  const bool first = *step == 0;  // then the buffer is not read, because it may be uninitialised
  for (int64_t i = thread_number(); i < n; i += thread_count()) {
    const A value = widen(param[i]);
    const A gradient = widen(grad[i]) + o.weight_decay * value;
    A direction = gradient;
    if (buffer) {
      const A velocity = first ? gradient : o.momentum * widen(buffer[i]) + o.fresh * gradient;
      buffer[i] = narrow<T>(velocity);
      direction = o.nesterov ? gradient + o.momentum * velocity : velocity;
    }
    param[i] = narrow<T>(value - rate * direction);
  }
}

template <class A>
struct Adam {
  A beta1;
  A fresh1;
  A beta2;
  A fresh2;
  A eps;
  double beta1_exact;
  double beta2_exact;
  double weight_decay;
  bool decoupled;
};

template <class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    adam_kernel(int64_t n, T* param, T* m, T* v, T* max_v, const T* grad, const double* lr,
                const int64_t* step, Adam<A> o) {
  if (*lr != *lr) return;
  // The bias corrections are moved out of the loop: m / (1 - β1^t) into the rate, v / (1 - β2^t)
  // into one factor. They are float64 powers, which cost as much as the steps of many elements. So
  // one thread of the block computes them.
  __shared__ A corrected_rate;
  __shared__ A correction;
  if (threadIdx.x == 0) {
    const double t = static_cast<double>(*step + 1);
    corrected_rate = static_cast<A>(*lr / (1 - std::pow(o.beta1_exact, t)));
    correction = static_cast<A>(1 / std::sqrt(1 - std::pow(o.beta2_exact, t)));
  }
  __syncthreads();
  const A decay = static_cast<A>(o.decoupled ? 0 : o.weight_decay);
  const A keep = static_cast<A>(o.decoupled ? 1 - *lr * o.weight_decay : 1);
  for (int64_t i = thread_number(); i < n; i += thread_count()) {
    const A value = widen(param[i]);
    const A gradient = widen(grad[i]) + decay * value;
    const A mean = o.beta1 * widen(m[i]) + o.fresh1 * gradient;
    A square = o.beta2 * widen(v[i]) + o.fresh2 * gradient * gradient;
    m[i] = narrow<T>(mean);
    v[i] = narrow<T>(square);
    if (max_v) {
      const A largest = widen(max_v[i]);
      square = square < largest ? largest : square;  // NaN of a new square stays
      max_v[i] = narrow<T>(square);
    }
    param[i] =
        narrow<T>(keep * value - corrected_rate * mean / (std::sqrt(square) * correction + o.eps));
  }
}

// Returns the data of a flat array, which may be undefined.
template <class T>
Element<T>* flat(const Tensor& x, const Tensor& param) {
  ASSERT(!x.defined() || (x.is_contiguous() && x.numel() == param.numel()));
  return optional_data<T>(x);
}

void sgd_step_cuda(Stream stream, const Tensor& param, const Tensor& buffer, const Tensor& grad,
                   const Tensor& lr, const Tensor& step, const kernels::SgdStepOptions& o) {
  ASSERT(buffer.defined() || o.momentum == 0);
  visit_floating("sgd_step", param.dtype(), [&]<class T>() {
    using A = ComputeOf<T>;
    const Sgd<A> options{static_cast<A>(o.momentum), static_cast<A>(1 - o.dampening),
                         static_cast<A>(o.weight_decay), o.nesterov};
    launch_elements(stream, param.numel(), sgd_kernel<Element<T>>, param.numel(),
                    flat<T>(param, param), o.momentum == 0 ? nullptr : flat<T>(buffer, param),
                    flat<T>(grad, param), lr.data<double>(), step.data<int64_t>(), options);
  });
}

void adam_step_cuda(Stream stream, const Tensor& param, const Tensor& m, const Tensor& v,
                    const Tensor& max_v, const Tensor& grad, const Tensor& lr, const Tensor& step,
                    const kernels::AdamStepOptions& o) {
  visit_floating("adam_step", param.dtype(), [&]<class T>() {
    using A = ComputeOf<T>;
    const Adam<A> options{static_cast<A>(o.beta1),
                          static_cast<A>(1 - o.beta1),
                          static_cast<A>(o.beta2),
                          static_cast<A>(1 - o.beta2),
                          static_cast<A>(o.eps),
                          o.beta1,
                          o.beta2,
                          o.weight_decay,
                          o.decoupled};
    launch_elements(stream, param.numel(), adam_kernel<Element<T>>, param.numel(),
                    flat<T>(param, param), flat<T>(m, param), flat<T>(v, param),
                    flat<T>(max_v, param), flat<T>(grad, param), lr.data<double>(),
                    step.data<int64_t>(), options);
  });
}

REGISTER_KERNEL(sgd_step, CUDA, Native, sgd_step_cuda);
REGISTER_KERNEL(adam_step, CUDA, Native, adam_step_cuda);

}  // namespace
}  // namespace ringgrad::cuda
