#include "ringgrad/autograd/ops/class_loss.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

void check_class_loss(const char* operation, const Tensor& x, const Tensor& target,
                      const ClassLossOptions& options) {
  check_floating(operation, x);
  check_defined(operation, target);
  bool fits = x.dim() >= 2 && target.dim() == x.dim() - 1;
  for (int d = 0; fits && d < target.dim(); ++d)
    fits = target.shape()[d] == x.shape()[d == 0 ? 0 : d + 1];
  CHECK_AS(ShapeError, fits && x.size(1) > 0, operation, ": the input has shape ", x.shape(),
           ", the target ", target.shape(),
           ", expected [N, C] and [N], or [N, C, H, W] and [N, H, W]");
  CHECK_AS(DTypeError, target.dtype() == DType::Int64, operation, ": the target has dtype ",
           target.dtype(), ", expected int64; convert with to(target, DType::Int64)");
  CHECK_AS(DeviceError, target.device() == x.device(), operation, ": the target is on ",
           target.device(), ", the input on ", x.device(),
           ", expected one device; move with to(x, device)");
  if (options.weight) {
    check_floating(operation, options.weight);
    CHECK_AS(ShapeError, options.weight.dim() == 1 && options.weight.size(0) == x.size(1),
             operation, ": the class weight has shape ", options.weight.shape(), ", expected [",
             x.size(1), "]");
    CHECK_AS(DeviceError, options.weight.device() == x.device(), operation,
             ": the class weight is on ", options.weight.device(), ", the input on ", x.device(),
             ", expected one device");
  }
}

// The targets are checked only on the CPU. On CUDA the check would stall the device; a bad target
// makes the loss NaN there.
void check_targets(const char* operation, const Tensor& target, int64_t classes,
                   int64_t ignore_index) {
  if (!target.device().is_cpu()) return;
  const int64_t* t = target.data<int64_t>();
  for (int64_t n = 0; n < target.numel(); ++n)
    CHECK_AS(IndexError, (t[n] >= 0 && t[n] < classes) || t[n] == ignore_index, operation,
             ": the target of row ", n, " is ", t[n], ", expected 0 to ", classes - 1,
             ", or the ignore_index ", ignore_index);
}

}  // namespace

Tensor row_scale(const Tensor& dy, const Tensor& weight_sum, int64_t rows) {
  Tensor scale = empty({rows}, {dy.dtype(), dy.device()});
  if (weight_sum)
    kernels::div(scale, broadcast_view(dy, {rows}), broadcast_view(weight_sum, {rows}));
  else
    kernels::copy(scale, broadcast_view(dy, {rows}));
  return scale;
}

Tensor over_class_rows(const char* operation, const Tensor& x, const Tensor& target,
                       const ClassLossOptions& options, const LossOfRows& loss_of_rows) {
  check_class_loss(operation, x, target, options);
  const Tensor flat = strided_contiguous(reshape(target.detach(), {target.numel()}));
  check_targets(operation, flat, x.size(1), options.ignore_index);
  const Tensor weight =
      options.weight ? strided_contiguous(to(options.weight.detach(), accumulator_dtype(x.dtype())))
                     : Tensor();
  if (x.dim() == 2) return loss_of_rows(strided_contiguous(x), flat, weight);
  CHECK(rows_of_pixels, operation, ": the input has shape ", x.shape(),
        ", but this program is linked without losses of images' pixels; link all of "
        "ringgrad::ringgrad, or give it [N, C]");
  const Tensor loss = loss_of_rows(strided_contiguous(rows_of_pixels(x)), flat, weight);
  return options.reduction == Reduction::None ? reshape(loss, target.shape()) : loss;
}

Tensor cross_entropy(const Tensor& x_, const Tensor& target_, const ClassLossOptions& options) {
  OpScope scope("cross_entropy");
  CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
        "cross_entropy: the label smoothing is ", options.label_smoothing,
        ", expected a number in [0, 1]");
  if (cross_entropy_of_probabilities && x_ && target_ && is_floating(target_.dtype()) &&
      target_.dim() == x_.dim())
    return cross_entropy_of_probabilities(x_, target_, options);
  return over_class_rows(
      "cross_entropy", x_, target_, options,
      [&](const Tensor& x, const Tensor& target, const Tensor& class_weight) {
        const int64_t rows = x.size(0);
        const kernels::CrossEntropyOptions smoothing = {options.label_smoothing,
                                                        options.ignore_index};
        Tensor loss = empty({rows}, {accumulator_dtype(x.dtype()), x.device()});
        Tensor weight = empty_like(loss);
        Tensor log_sum_exp = empty({rows, 2}, {loss.dtype(), x.device()});
        kernels::cross_entropy(loss, weight, log_sum_exp, x, target, class_weight, smoothing);
        ReducedRows reduced(loss, weight, options.reduction);
        return differentiable(
            "cross_entropy", {x}, reduced.result,
            [x = save(x, 0), target = save(target),
             class_weight = save(class_weight, kSavedConstant),
             log_sum_exp = save(log_sum_exp, kSavedConstant),
             weight_sum = save(reduced.weight_sum, kSavedConstant), rows,
             smoothing](const Tensor& dy) -> Gradients {
              if (grad_enabled())
                return {twice->cross_entropy(dy, x.get(), target.get(), class_weight.get(),
                                             weight_sum.get(), smoothing)};
              Tensor dx = empty_like(x.get());
              kernels::cross_entropy_backward(dx, row_scale(dy, weight_sum.get(), rows), x.get(),
                                              log_sum_exp.get(), target.get(), class_weight.get(),
                                              smoothing);
              return {dx};
            });
      });
}

}  // namespace ringgrad
