// Creates tensors of random numbers.
#pragma once

#include "ringgrad/core/random.h"

namespace ringgrad {

// Draws uniform numbers in [0, 1) from the default generator.
Tensor rand(const Shape& shape, TensorOptions options = {});
// Draws standard normal numbers from the default generator.
Tensor randn(const Shape& shape, TensorOptions options = {});
Tensor rand_like(const Tensor& x);
Tensor randn_like(const Tensor& x);
// Draws integers in [low, high), all with the same probability. Throws DTypeError if the dtype does
// not hold all of them exactly: float32 holds those up to 2^24.
Tensor randint(Int64 low, Int64 high, const Shape& shape,
               TensorOptions options = {.dtype = DType::Int64});

}  // namespace ringgrad
