// Creates tensors of numbers that follow a rule, and tensors over memory of the caller's.
#pragma once

#include <functional>

#include "ringgrad/core/factory.h"

namespace ringgrad {

Tensor arange(Int64 n, TensorOptions options = {.dtype = DType::Int64});  // 0 … n-1
// Returns begin, begin + step, … before end. It is int64 if all three are integers, and otherwise
// float32, as in PyTorch.
Tensor arange(Scalar begin, Scalar end, Scalar step, TensorOptions options);
Tensor arange(Scalar begin, Scalar end, Scalar step = 1);
// Includes both ends. Integers from integer ends are exact; their fractions are dropped.
Tensor linspace(Scalar begin, Scalar end, Int64 steps, TensorOptions options = {});
Tensor eye(Int64 rows, Int64 columns, TensorOptions options = {});  // ones on the diagonal
inline Tensor eye(Int64 n, TensorOptions options = {}) { return eye(n, n, options); }
// Returns a contiguous CPU tensor over memory that the caller keeps. `release` runs when the last
// handle is gone.
Tensor from_blob(
    void* data, const Shape& shape, DType dtype = DType::Float32,
    std::function<void()> release = [] {});

}  // namespace ringgrad
