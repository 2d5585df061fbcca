// Reductions. `dims` may be negative; empty means all of them. With keepdim the reduced dimensions stay with size 1.
// An empty mean is NaN, an empty maximum an IndexError, as is a dimension that is not there. A sum of integers or bools
// is int64. A scalar has dimension 0.
#pragma once

#include <utility>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

Tensor sum(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
// The variance with divisor n - correction (1: Bessel's, as PyTorch's default).
Tensor var(const Tensor& x, const std::vector<int>& dims = {}, int correction = 1, bool keepdim = false);

// The extreme value over everything (shape []), or along one dimension. The gradient goes to the first of equals.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
struct ValuesAndIndices {
  Tensor values, indices;  // indices int64, without gradient
};
ValuesAndIndices max(const Tensor& x, int dim, bool keepdim = false);
ValuesAndIndices min(const Tensor& x, int dim, bool keepdim = false);
Tensor argmax(const Tensor& x, int dim, bool keepdim = false);

}  // namespace ringgrad
