#include "ringgrad/cuda_kernels/runtime/deviations.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/common/map.cuh"
#include "ringgrad/cuda_kernels/common/moments.cuh"

namespace ringgrad::cuda {
namespace {

__global__ void __launch_bounds__(kThreads)
    variances_kernel(int64_t channels, float* var, const float* mean, float eps,
                     Running<float> running, float unbiased) {
  for (int64_t c = thread_number(); c < channels; c += thread_count()) {
    const float biased = 1 / (var[c] * var[c]) - eps;
    const float kept = 1 - running.momentum;
    var[c] = biased;
    if (running.mean) running.mean[c] = kept * running.mean[c] + running.momentum * mean[c];
    if (running.var) running.var[c] = kept * running.var[c] + running.momentum * unbiased * biased;
    if (running.batches && c == 0) ++*running.batches;
  }
}

struct Rstd {
  float eps;
  __device__ float operator()(float var) const { return 1 / std::sqrt(var + eps); }
};

}  // namespace

void rstd_of(Stream stream, const Tensor& rstd, const Tensor& var, double eps) {
  map<float>(stream, rstd, Rstd{static_cast<float>(eps)}, var);
}

void variances_of(Stream stream, const Tensor& var, const Tensor& mean, double eps,
                  const kernels::RunningStatistics& running, double count) {
  for (const Tensor* x : {&var, &mean, &running.mean, &running.var})
    ASSERT(!*x ||
           (x->dtype() == DType::Float32 && x->is_contiguous() && x->numel() == var.numel()));
  const Running<float> updated{
      optional_data<float>(running.mean), optional_data<float>(running.var),
      optional_data<int64_t>(running.batches), static_cast<float>(running.momentum)};
  launch_elements(stream, var.numel(), variances_kernel, var.numel(), device_data<float>(var),
                  device_data<float>(mean), static_cast<float>(eps), updated,
                  static_cast<float>(count / (count - 1)));
}

}  // namespace ringgrad::cuda
