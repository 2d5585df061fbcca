// Losses of rows of logits, each with its class. Private to autograd/ops.
#pragma once

#include <functional>

#include "ringgrad/autograd/classifier_ops.h"
#include "ringgrad/autograd/ops/common.h"

namespace ringgrad {

// The reduced loss of rows, and what backward needs to turn d(result) into d(result)/d(loss[n]).
// Nothing here waits for the device: the sum of the weights stays there.
struct ReducedRows {
  Tensor result;
  Tensor weight_sum;
  ReducedRows(const Tensor& loss, const Tensor& weight, Reduction reduction) : result(loss) {
    if (reduction == Reduction::None) return;
    result = sum_to(loss, {});
    if (reduction == Reduction::Mean) {
      weight_sum = sum_to(weight, {});
      kernels::div(result, result, weight_sum);
    }
  }
};

// Returns d(result)/d(loss[n]) for each row. `weight_sum` is the divisor of a mean, else undefined.
Tensor row_scale(const Tensor& dy, const Tensor& weight_sum, int64_t rows);

// Calls loss_of_rows on [N, C] logits and [N] targets, whatever the number of dimensions.
using LossOfRows =
    std::function<Tensor(const Tensor& x, const Tensor& target, const Tensor& class_weight)>;
Tensor over_class_rows(const char* operation, const Tensor& x, const Tensor& target,
                       const ClassLossOptions& options, const LossOfRows& loss_of_rows);

// Returns images [N, C, H, W] as [N H W, C], if the program contains that (further/views.cpp).
inline Tensor (*rows_of_pixels)(const Tensor& images) = nullptr;

// cross_entropy() for a floating target, if the program contains it (autograd/composed/losses.cpp).
inline Tensor (*cross_entropy_of_probabilities)(const Tensor& x, const Tensor& target,
                                                const ClassLossOptions& options) = nullptr;

}  // namespace ringgrad
