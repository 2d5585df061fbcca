#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/class_loss.h"
#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {

Tensor nll_loss(const Tensor& x_, const Tensor& target_, const ClassLossOptions& options) {
  OpScope scope("nll_loss");
  CHECK(options.label_smoothing == 0, "nll_loss: the label smoothing is ", options.label_smoothing,
        ", expected 0; cross_entropy() has it");
  return over_class_rows(
      "nll_loss", x_, target_, options,
      [&](const Tensor& x, const Tensor& target, const Tensor& class_weight) {
        const int64_t rows = x.size(0);
        const int64_t ignore_index = options.ignore_index;
        Tensor loss = empty({rows}, {accumulator_dtype(x.dtype()), x.device()});
        Tensor weight = empty_like(loss);
        kernels::nll_loss(loss, weight, x, target, class_weight, ignore_index);
        ReducedRows reduced(loss, weight, options.reduction);
        return differentiable(
            "nll_loss", {x}, reduced.result,
            [dtype = x.dtype(), shape = x.shape(), target = save(target),
             class_weight = save(class_weight, kSavedConstant),
             weight_sum = save(reduced.weight_sum, kSavedConstant), rows,
             ignore_index](const Tensor& dy) -> Gradients {
              if (grad_enabled())
                return {neg(
                    to(mul(row_gradient(dy, weight_sum.get(), target.get(), ignore_index),
                           class_parts(target.get(), class_weight.get(), empty(shape, dy.options()),
                                       {.ignore_index = ignore_index})),
                       dtype))};
              Tensor dx = empty(shape, {dtype, dy.device()});
              kernels::nll_loss_backward(dx, row_scale(dy, weight_sum.get(), rows), target.get(),
                                         class_weight.get(), ignore_index);
              return {dx};
            });
      });
}

double loss_divisor(const Tensor& target, const ClassLossOptions& options) {
  check_defined("loss_divisor", target);
  const auto weights =
      options.weight ? to_vector<double>(options.weight.detach()) : std::vector<double>();
  double sum = 0;
  for (const int64_t t : to_vector<int64_t>(target.detach())) {
    if (t == options.ignore_index) continue;
    CHECK_AS(IndexError, t >= 0 && (weights.empty() || t < std::ssize(weights)),
             "loss_divisor: a target is ", t,
             ", expected the number of a class, or the ignore_index ", options.ignore_index);
    sum += weights.empty() ? 1 : weights[t];
  }
  return sum;
}

}  // namespace ringgrad
