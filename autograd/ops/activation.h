// Nonlinearities, elementwise. Any shape; floating dtypes; layouts and strides are kept where zero maps to zero.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

Tensor relu(const Tensor& x);                             // max(x, 0); gradient 0 at 0, and at NaN (PyTorch: 1)
Tensor leaky_relu(const Tensor& x, double slope = 0.01);  // x > 0 ? x : slope x; gradient slope at 0
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor gelu(const Tensor& x);  // x Φ(x), exact (by erf), as PyTorch's default
Tensor silu(const Tensor& x);  // x sigmoid(x)

}  // namespace ringgrad
