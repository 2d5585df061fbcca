#include "ringgrad/autograd/classifier_ops.h"
#include "ringgrad/autograd/gradient_home.h"
#include "ringgrad/autograd/ops/batch_norm.h"

#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad {

constinit BatchNormMaxPool batch_norm_max_pool = nullptr;
constinit BatchNormInRange batch_norm_in_range = nullptr;

namespace {

// Checks a per-channel argument: its shape [C], its device, and its dtype, which is x's or that of
// x's sums; running statistics have the latter. It may be undefined.
void check_per_channel(const char* operation, const char* argument, const Tensor& x,
                       const Tensor& value, bool running) {
  if (!value) return;
  const DType wanted = accumulator_dtype(x.dtype());
  CHECK_AS(ShapeError, value.dim() == 1 && value.size(0) == x.size(1), operation, ": the ",
           argument, " has shape ", value.shape(), ", the input ", x.shape(), ", expected [",
           x.size(1), "], one for each channel");
  CHECK_AS(DTypeError, value.dtype() == wanted || (!running && value.dtype() == x.dtype()),
           operation, ": the ", argument, " has dtype ", value.dtype(), ", the input ", x.dtype(),
           ", expected ", wanted);
  CHECK_AS(DeviceError, value.device() == x.device(), operation, ": the ", argument, " is on ",
           value.device(), ", the input on ", x.device(),
           ", expected one device; move with to(x, device)");
}

}  // namespace

void check_batch_norm(const char* operation, const Tensor& x, const Tensor& weight,
                      const Tensor& bias, const Tensor& running_mean, const Tensor& running_var,
                      const BatchNormOptions& options) {
  check_floating(operation, x);
  CHECK_AS(ShapeError, x.dim() >= 2, operation, ": the input has shape ", x.shape(),
           ", expected at least 2 dimensions [N, C, ...]");
  check_per_channel(operation, "weight", x, weight, false);
  check_per_channel(operation, "bias", x, bias, false);
  check_per_channel(operation, "running mean", x, running_mean, true);
  check_per_channel(operation, "running variance", x, running_var, true);
  CHECK(options.training || (running_mean && running_var), operation,
        ": evaluation needs the running mean and variance, and they are undefined");
  CHECK(
      !options.batches || (options.batches.dtype() == DType::Int64 &&
                           options.batches.numel() == 1 && options.batches.device() == x.device()),
      operation, ": the number of batches is ",
      options.batches
          ? str(options.batches.dtype(), options.batches.shape(), " on ", options.batches.device())
          : "",
      ", the input on ", x.device(), ", expected int64 [] there");
  CHECK(options.max_pool >= 0, operation, ": max_pool is ", options.max_pool,
        ", expected the side of a window, or 0");
  CHECK_AS(ShapeError,
           options.max_pool == 0 ||
               (x.dim() == 4 && x.size(2) >= options.max_pool && x.size(3) >= options.max_pool &&
                x.size(2) <= INT32_MAX / x.size(3)),
           operation, ": the input has shape ", x.shape(),
           ", expected [N, C, H, W] to be pooled by ", Pair(options.max_pool),
           ", with planes of less than 2^31 pixels");
  if (!options.residual) return;
  check_same_kind(operation, x, options.residual);
  CHECK_AS(ShapeError, options.residual.shape() == x.shape(), operation,
           ": the residual has shape ", options.residual.shape(), ", the input ", x.shape(),
           ", expected equal shapes");
}

kernels::RunningStatistics running_statistics(const char* operation, const Tensor& running_mean,
                                              const Tensor& running_var,
                                              const BatchNormOptions& options) {
  if (tape_observer && tape_observer->runs_again()) return {};
  for (const Tensor& changed : {running_mean, running_var, options.batches})
    if (changed) begin_write(operation, changed);
  return {running_mean, running_var, options.batches, options.momentum};
}

// Note [Why batch norm is a pass of its own]
// On Hopper the convolutions beside batch norm sum for it (autograd/conv_batch_norm.h). For the CPU
// this was tried: convolutions that normalise and rectify their input and sum their output, at no
// measurable cost. Where no residual is added, y would never be written. Memory would be crossed
// six times instead of eight. But batch norm is 14 % of a step of ResNet-20 (less in larger
// networks), and half of its bytes belong to layers with a residual. So the gain is about 3 % of a
// step. Every network would have to be written in terms of the pair, and y would not exist for
// hooks or `graph`. If a convolution only keeps the sums beside its output, ResNet-20 gains 2 % in
// float32 and nothing in bfloat16, and ResNet-18 1 %. Fusing what follows batch norm does pay:
// pixel by pixel (a residual, ReLU) or window by window (max pooling).
const char* fused_into(const BatchNormOptions& options) {
  if (options.max_pool)
    return options.activation == Activation::Relu ? "+ relu + max_pool" : "+ max_pool";
  if (options.activation == Activation::Relu)
    return options.residual ? "+ residual + relu" : "+ relu";
  return options.residual ? "+ residual" : "";
}

Tensor batch_norm(const Tensor& x_, const Tensor& weight_, const Tensor& bias_,
                  const Tensor& running_mean, const Tensor& running_var,
                  const BatchNormOptions& options) {
  OpScope scope("batch_norm");
  check_batch_norm("batch_norm", x_, weight_, bias_, running_mean, running_var, options);
  if (options.max_pool && (!batch_norm_max_pool || options.residual || x_.numel() == 0)) {
    BatchNormOptions unpooled = options;
    unpooled.max_pool = 0;
    return max_pool2d(batch_norm(x_, weight_, bias_, running_mean, running_var, unpooled),
                      {.kernel = options.max_pool});
  }
  if (x_.numel() == 0)  // the running statistics do not change
    return normalized_nothing("batch_norm", {x_, weight_, bias_, options.residual});
  const int64_t channels = x_.size(1);
  const int64_t count = x_.numel() / channels;
  CHECK_AS(ShapeError, !options.training || count > 1, "batch_norm: the input ", x_.shape(),
           " has one value per channel, expected at least 2 in training: "
           "the variance of one is undefined");

  const bool relu = options.activation == Activation::Relu;
  const double eps = options.eps;
  const Layout layout = options.max_pool ? layout_policy(x_.device()).pool2d(x_)
                                         : layout_policy(x_.device()).batch_norm(x_);
  const BatchNormArguments in(to_layout(x_, layout), weight_, bias_, running_mean, running_var,
                              options.training);
  const auto& [x, weight, bias, mean, var] = in;
  kernels::RunningStatistics running;
  if (options.training)
    running = running_statistics("batch_norm", running_mean, running_var, options);
  if (options.max_pool) return batch_norm_max_pool(in, running, options);
  const Tensor residual = options.residual ? to_layout(options.residual, x.layout()) : Tensor();

  const Tensor inputs[] = {x, weight, bias, residual};
  const Tensor y = empty_like(x);
  const Tensor positive = relu && detail::needs_grad(inputs)
                              ? layout_policy(x.device()).batch_norm_positive(x)
                              : Tensor();
  if (options.training)
    kernels::batch_norm(y, positive, mean, var, x, weight, bias, residual, eps, relu, running);
  else
    kernels::batch_norm_apply(y, positive, x, mean, var, weight, bias, residual, eps, relu);
  if (batch_norm_in_range)
    if (const Tensor again = batch_norm_in_range(in, options)) return again;

  const Tensor recorded = differentiable(
      "batch_norm", inputs, y,
      [x = save(x, 0), y = save_if(relu, positive ? positive : y, kSavedConstant),
       mean = save(mean, kSavedConstant), var = save(var, kSavedConstant), weight = save(weight, 1),
       eps, training = options.training, wants_dx = wants_grad(x),
       wants_residual = wants_grad(residual), wants_weight = wants_grad(weight),
       wants_bias = wants_grad(bias), weight_home = GradientHome(weight),
       bias_home = GradientHome(bias)](const Tensor& dy_) -> Gradients {
        if (grad_enabled())
          return twice->batch_norm(dy_, x.get(), weight.get(), y.get(),
                                   training ? Tensor() : mean.get(), var.get(), eps);
        const Tensor& images = x.get();
        const Tensor dy = to_layout(dy_, images.layout());
        Tensor sum_dy = bias_home.claim_or_empty(mean.get());
        Tensor sum_dy_xhat = weight_home.claim_or_empty(mean.get());
        Tensor dx;
        Tensor dresidual;
        if (wants_dx || wants_residual) dx = empty_like(images);
        if (wants_residual) dresidual = empty_like(dx);
        if (training) {
          kernels::batch_norm_backward(sum_dy, sum_dy_xhat, dx, dresidual, dy, images, y.get(),
                                       mean.get(), var.get(), weight.get(), eps);
        } else {  // mean and var are constants
          kernels::batch_norm_backward_reduce(sum_dy, sum_dy_xhat, dy, images, y.get(), mean.get(),
                                              var.get(), eps);
          if (dx)
            kernels::batch_norm_backward_apply(dx, dresidual, dy, images, y.get(), mean.get(),
                                               var.get(), weight.get(), sum_dy, sum_dy_xhat, eps,
                                               INFINITY);
        }
        return {dx, wants_weight ? sum_dy_xhat : Tensor(), wants_bias ? sum_dy : Tensor(),
                dresidual};
      });
  return with_fused(recorded, fused_into(options));
}

}  // namespace ringgrad
