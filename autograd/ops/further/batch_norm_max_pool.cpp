#include <cmath>

#include "ringgrad/autograd/gradient_home.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/batch_norm.h"
#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {

// Batch norm, ReLU and max pooling in one pass. Backward's sums need x only at each window's
// maximum, `winners`.
static Tensor in_one_pass(const BatchNormArguments& in, const kernels::RunningStatistics& running,
                          const BatchNormOptions& options) {
  const auto& [x, weight, bias, mean, var] = in;
  const bool relu = options.activation == Activation::Relu;
  const double eps = options.eps;
  const int64_t window = options.max_pool;
  // The divisor of the gradient's sums. In evaluation mean and var are constants, so it is
  // infinite.
  double count = INFINITY;
  if (options.training) {
    count = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
    kernels::batch_norm_stats(mean, var, x);
    update_running(running, mean, var, count);
  }
  Tensor y = empty({x.size(0), x.size(1), x.size(2) / window, x.size(3) / window}, x.options());
  Tensor winners = empty_like(y);
  Tensor index = empty(y.shape(), {DType::Int32, x.device(), x.layout()});
  kernels::batch_norm_max_pool(y, winners, index, x, mean, var, weight, bias, eps, relu, window);
  if (batch_norm_in_range)
    if (const Tensor again = batch_norm_in_range(in, options)) return again;
  const bool wants_dx = wants_grad(x);
  const Tensor recorded = differentiable(
      "batch_norm", {x, weight, bias}, y,
      [x = save_if(wants_dx, x, 0), y = save_if(relu, y, kSavedConstant),
       winners = save(winners, kSavedConstant), index = save_if(wants_dx, index),
       mean = save(mean, kSavedConstant), var = save(var, kSavedConstant), weight = save(weight, 1),
       eps, window, count, wants_dx, wants_weight = wants_grad(weight),
       wants_bias = wants_grad(bias), weight_home = GradientHome(weight),
       bias_home = GradientHome(bias)](const Tensor& dy_) -> Gradients {
        if (grad_enabled()) {
          const Tensor g = y ? where(y.get() > 0, dy_, 0) : dy_;
          if (!wants_dx)
            return batch_norm_gradients(g, winners.get(), weight.get(), {}, mean.get(), var.get(),
                                        eps);
          return batch_norm_gradients(max_pool2d_gradient(g, index.get(), x.get().shape()), x.get(),
                                      weight.get(), {}, std::isinf(count) ? mean.get() : Tensor(),
                                      var.get(), eps);
        }
        const Tensor& images = x.get();
        const Tensor dy = to_layout(dy_, winners.get().layout());
        Tensor sum_dy = bias_home.claim_or_empty(mean.get());
        Tensor sum_dy_xhat = weight_home.claim_or_empty(mean.get());
        Tensor dx;
        kernels::batch_norm_backward_reduce(sum_dy, sum_dy_xhat, dy, winners.get(), y.get(),
                                            mean.get(), var.get(), eps);
        if (wants_dx) {
          dx = empty_like(images);
          kernels::batch_norm_max_pool_backward(dx, dy, index.get(), images, y.get(), mean.get(),
                                                var.get(), weight.get(), sum_dy, sum_dy_xhat, eps,
                                                count, window);
        }
        return {dx, wants_weight ? sum_dy_xhat : Tensor(), wants_bias ? sum_dy : Tensor()};
      });
  return with_fused(recorded, fused_into(options));
}
BEFORE_MAIN(max_pool_in_one_pass, batch_norm_max_pool = in_one_pass);

}  // namespace ringgrad
