// batch_norm and its backward as the steps of the contract, one after the other: each device registers them as its own.
#pragma once

#include "ringgrad/core/kernels.h"

namespace ringgrad {

inline void batch_norm_in_steps(Stream, const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                                const Tensor& weight, const Tensor& bias, const Tensor& residual, double eps,
                                bool relu) {
  kernels::batch_norm_stats(mean, var, x);
  kernels::batch_norm_apply(y, x, mean, var, weight, bias, residual, eps, relu);
}

inline void batch_norm_backward_in_steps(Stream, const Tensor& sum_dy, const Tensor& sum_dy_xhat, const Tensor& dx,
                                         const Tensor& dresidual, const Tensor& dy, const Tensor& x, const Tensor& y,
                                         const Tensor& mean, const Tensor& var, const Tensor& weight, double eps) {
  kernels::batch_norm_backward_reduce(sum_dy, sum_dy_xhat, dy, x, y, mean, var, eps);
  if (!dx) return;
  const double count = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
  kernels::batch_norm_backward_apply(dx, dresidual, dy, x, y, mean, var, weight, sum_dy, sum_dy_xhat, eps, count);
}

}  // namespace ringgrad
