// Picking elements by index. Indices are int64; a value outside its range throws IndexError (for tensors on the CPU).
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

Tensor index_select(const Tensor& x, int dim, const Tensor& index);  // index [M]: slices index[0], index[1], … of x
Tensor gather(const Tensor& x, int dim, const Tensor& index);        // y[i][j] = x[index[i][j]][j] for dim 0
Tensor one_hot(const Tensor& index, int64_t num_classes, DType dtype = DType::Float32);  // [..., num_classes]

}  // namespace ringgrad
