// Losses. Mean: divided by the number of elements (by the sum of the targets' class weights for the two that have
// them). None: one value per element, or per row.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

enum class Reduction : uint8_t { Mean, Sum, None };

struct ClassLossOptions {
  Tensor weight = {};           // [C], a weight per class
  int64_t ignore_index = -100;  // rows with this target count nothing
  double label_smoothing = 0;   // cross_entropy only, in [0, 1]: Szegedy et al. 2016, section 7
  Reduction reduction = Reduction::Mean;
};

// log_softmax and nll_loss in one node: x [N, C] logits, target int64 [N] with values in [0, C) or ignore_index; or
// x [N, C, H, W] and target [N, H, W]. Throws IndexError naming the row of a target outside (for tensors on the CPU).
// The loss of 16-bit logits is float32. Where every row is ignored, the mean is NaN (0/0).
Tensor cross_entropy(const Tensor& x, const Tensor& target, const ClassLossOptions& options = {});
// The same for x that holds log-probabilities.
Tensor nll_loss(const Tensor& x, const Tensor& target, const ClassLossOptions& options = {});

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::Mean);
// target in [0, 1], the same shape as x.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::Mean);

}  // namespace ringgrad
