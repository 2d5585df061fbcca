// Pooling of images, [N, C, H, W] → [N, C, P, Q].
#pragma once

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options);  // the gradient goes to the first of equals
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options);
// Windows that cover the input evenly: i of P is rows ⌊i H / P⌋ … ⌈(i + 1) H / P⌉ - 1.
Tensor adaptive_avg_pool2d(const Tensor& x, Pair output_size);

}  // namespace ringgrad
