// Matrix products.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// [M, K] · [K, N] → [M, N];  [B, M, K] · [B, K, N] → [B, M, N]; a 2-D operand of a 3-D one is used for every batch.
// Any strides: a transposed view is not copied. Throws ShapeError naming the inner sizes that differ.
Tensor matmul(const Tensor& a, const Tensor& b);

// y = x wᵀ + b:  x [..., in], w [out, in], b [out] or undefined, y [..., out]. Weights and biases have x's dtype, or
// stay float32 where that has 16 bits.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b = {});

}  // namespace ringgrad
