#include "ringgrad/nn/losses.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad::nn {

BCELoss::BCELoss(const BCELossOptions& options) : reduction_(options.reduction) {
  weight = register_buffer("weight", options.weight);
}
Tensor BCELoss::forward(const Tensor& x, const Tensor& target) {
  return binary_cross_entropy(x, target, weight, reduction_);
}

BCEWithLogitsLoss::BCEWithLogitsLoss(const BCEWithLogitsLossOptions& options)
    : reduction_(options.reduction) {
  weight = register_buffer("weight", options.weight);
  pos_weight = register_buffer("pos_weight", options.pos_weight);
}
Tensor BCEWithLogitsLoss::forward(const Tensor& x, const Tensor& target) {
  return binary_cross_entropy_with_logits(x, target, weight, pos_weight, reduction_);
}

Tensor KLDivLoss::forward(const Tensor& x, const Tensor& target) {
  if (!options_.batchmean) return kl_div(x, target, options_.reduction, options_.log_target);
  const Tensor sum = kl_div(x, target, Reduction::Sum, options_.log_target);
  CHECK_AS(ShapeError, x.dim() > 0 && x.size(0) > 0, "KLDivLoss: the input has shape ", x.shape(),
           ", expected [N, …], whose N divides the sum");
  return div(sum, x.size(0));
}

}  // namespace ringgrad::nn
