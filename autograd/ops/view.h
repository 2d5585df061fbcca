// Other shapes of the same elements. reshape, flatten, transpose, permute, slice, expand, squeeze and unsqueeze return
// views where strides can express the result (reshape copies otherwise); cat, stack and pad copy. Sizes that do not fit
// are a ShapeError, a dimension that is not there is an IndexError.
#pragma once

#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

Tensor reshape(const Tensor& x, const Shape& shape);                   // one size may be -1: what is left
Tensor flatten(const Tensor& x, int start_dim = 0, int end_dim = -1);  // dimensions start … end become one
Tensor transpose(const Tensor& x, int dim0, int dim1);
Tensor permute(const Tensor& x, const std::vector<int>& order);  // y.size(i) = x.size(order[i])
// Elements begin, begin + step, … below end along dim; negative bounds count from the end and are clamped (Python).
Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end = INT64_MAX, int64_t step = 1);
Tensor expand(const Tensor& x, const Shape& shape);  // repeats dimensions of size 1; -1 keeps a size
Tensor squeeze(const Tensor& x, int dim);            // removes a dimension of size 1
Tensor unsqueeze(const Tensor& x, int dim);          // inserts one
Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);
// before/after pairs, last dimension first, as PyTorch: pad(x, {1, 1, 2, 2}) widens W by 1 and H by 2 on each side.
Tensor pad(const Tensor& x, const std::vector<int64_t>& widths, double value = 0);

}  // namespace ringgrad
