// Batch norm's kernels that convolutions and vendors' libraries use.
#pragma once

#include "ringgrad/core/kernels/classifier_kernels.h"

namespace ringgrad::cuda {

// Computes batch_norm_stats() of x, and updates the running statistics. If `parts` is defined, they
// replace x: float32 [part, C, 3], the count, the mean and the sum of squared deviations of each
// part of a channel's elements. They are merged in an order that depends only on their number.
void batch_statistics(Stream stream, const Tensor& mean, const Tensor& var, const Tensor& x,
                      const Tensor& parts, const kernels::RunningStatistics& running);

// Completes batch_norm_backward_reduce() of parts [part, C, 2], float32: the sums of g and of
// g (x - mean).
void merge_gradient_sums(Stream stream, const Tensor& sum_dy, const Tensor& sum_dy_xhat,
                         const Tensor& parts, const Tensor& var, double eps);

}  // namespace ringgrad::cuda
