#include "ringgrad/core/kernels/conv_batch_norm.h"

#include <cmath>

#include "ringgrad/core/factory.h"

namespace ringgrad {

void conv2d_batch_stats_in_steps(Stream, const Tensor& y, const Tensor& mean, const Tensor& var,
                                 const Tensor& x, const Tensor& w, const Conv2dOptions& options,
                                 const kernels::RunningStatistics& running) {
  kernels::conv2d(y, x, w, {}, options);
  kernels::batch_norm_stats(mean, var, y);
  update_running(running, mean, var,
                 static_cast<double>(y.numel()) / static_cast<double>(y.size(1)));
}

void conv2d_backward_batch_sums_in_steps(Stream, const Tensor& g, const Tensor& sum_dy,
                                         const Tensor& sum_dy_xhat, const Tensor& dy,
                                         const Tensor& w, const Tensor& addend, const Tensor& x,
                                         const Tensor& y, const Tensor& mean, const Tensor& var,
                                         double eps, const Conv2dOptions& options) {
  const Tensor dx = y ? empty_like(g) : g;
  kernels::conv2d_backward_input(dx, dy, w, addend, options);
  kernels::batch_norm_backward_reduce(sum_dy, sum_dy_xhat, dx, x, y, mean, var, eps);
  // The kernel that knows how bits lie rectifies. What else it computes is not used.
  if (y)
    kernels::batch_norm_backward_apply(empty_like(g), g, dx, x, y, mean, var, {}, sum_dy,
                                       sum_dy_xhat, eps, INFINITY);
}

bool fuses_batch_norm(Device device, const ConvProblem& problem) {
  const Fusion fusion = problem.pass == ConvPass::Forward ? conv_batch_norm_fusions.statistics
                                                          : conv_batch_norm_fusions.gradients;
  if (fusion != Fusion::WhereFaster) return fusion == Fusion::Always;
  return device.is_cuda() && cuda_fuses_batch_norm && cuda_fuses_batch_norm(device, problem);
}

REGISTER_KERNEL(conv2d_batch_stats, CPU, Reference, conv2d_batch_stats_in_steps);
REGISTER_KERNEL(conv2d_backward_batch_sums, CPU, Reference, conv2d_backward_batch_sums_in_steps);

Tensor batch_norm_rectified(const Tensor& dresidual, const Tensor& dy, const Tensor& y) {
  if (!dresidual && !y) return dy;
  const Tensor g = dresidual ? dresidual : empty_like(dy);
  if (y)
    kernels::relu_backward(g, dy, y);
  else
    kernels::copy(g, dy);
  return g;
}

}  // namespace ringgrad
