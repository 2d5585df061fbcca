// The same values in another dtype, on another device, or in another order in memory.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// x itself where nothing changes. The gradient is converted back. To an integer dtype: truncated, without gradient.
Tensor to(const Tensor& x, DType dtype);
Tensor to(const Tensor& x, Device device);
Tensor contiguous(const Tensor& x);                // row-major, without gaps
Tensor to_layout(const Tensor& x, Layout layout);  // to Strided from another layout: contiguous; see Layout

}  // namespace ringgrad
