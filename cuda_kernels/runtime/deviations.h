// Between batch norm's contract, which keeps the variance of each channel, and cuDNN, which keeps 1
// / sqrt(var + eps): one kernel each way, where the contract's would be five and two. All tensors
// are float32 [C], contiguous.
#pragma once

#include "ringgrad/core/kernels.h"

namespace ringgrad::cuda {

// rstd = 1 / sqrt(var + eps).
void rstd_of(Stream stream, const Tensor& rstd, const Tensor& var, double eps);
// var, which holds rstd, becomes the variance; then the running statistics as update_running()
// makes them, for `count` elements of each channel.
void variances_of(Stream stream, const Tensor& var, const Tensor& mean, double eps,
                  const kernels::RunningStatistics& running, double count);

}  // namespace ringgrad::cuda
