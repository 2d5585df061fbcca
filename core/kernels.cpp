// Kernels that are composed of other kernels and so run on every device.
#include "ringgrad/core/kernels/classifier_kernels.h"

#include <atomic>

namespace ringgrad {

static std::atomic<ConvAlgorithm> chosen_algorithm{ConvAlgorithm::Auto};
void set_conv_algorithm(ConvAlgorithm algorithm) { chosen_algorithm = algorithm; }
ConvAlgorithm conv_algorithm() { return chosen_algorithm; }

void batch_norm_in_steps(Stream, const Tensor& y, const Tensor& positive, const Tensor& mean,
                         const Tensor& var, const Tensor& x, const Tensor& weight,
                         const Tensor& bias, const Tensor& residual, double eps, bool relu,
                         const kernels::RunningStatistics& running) {
  kernels::batch_norm_stats(mean, var, x);
  kernels::batch_norm_apply(y, positive, x, mean, var, weight, bias, residual, eps, relu);
  update_running(running, mean, var,
                 static_cast<double>(x.numel()) / static_cast<double>(x.size(1)));
}

void update_running(const kernels::RunningStatistics& running, const Tensor& mean,
                    const Tensor& var, double count) {
  const double kept = 1 - running.momentum;
  if (running.mean) kernels::axpby(running.mean, mean, running.momentum, kept);
  if (running.var) kernels::axpby(running.var, var, running.momentum * (count / (count - 1)), kept);
  if (running.batches) kernels::affine(running.batches, running.batches, 1, 1);
}

void batch_norm_backward_in_steps(Stream, const Tensor& sum_dy, const Tensor& sum_dy_xhat,
                                  const Tensor& dx, const Tensor& dresidual, const Tensor& dy,
                                  const Tensor& x, const Tensor& y, const Tensor& mean,
                                  const Tensor& var, const Tensor& weight, double eps) {
  kernels::batch_norm_backward_reduce(sum_dy, sum_dy_xhat, dy, x, y, mean, var, eps);
  if (!dx) return;
  const double count = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
  kernels::batch_norm_backward_apply(dx, dresidual, dy, x, y, mean, var, weight, sum_dy,
                                     sum_dy_xhat, eps, count);
}

}  // namespace ringgrad
