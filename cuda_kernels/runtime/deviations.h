// Converts between batch norm's contract, which keeps the variance of each channel, and cuDNN,
// which keeps 1 / sqrt(var + eps). Each direction is one kernel, where the contract's kernels would
// take five and two. All tensors are float32 [C], contiguous.
#pragma once

#include "ringgrad/core/kernels.h"

namespace ringgrad::cuda {

// rstd = 1 / sqrt(var + eps).
void rstd_of(Stream stream, const Tensor& rstd, const Tensor& var, double eps);
// Converts `var` from rstd to the variance. Then updates the running statistics like
// update_running(), for `count` elements of each channel.
void variances_of(Stream stream, const Tensor& var, const Tensor& mean, double eps,
                  const kernels::RunningStatistics& running, double count);

}  // namespace ringgrad::cuda
