// The arithmetic on the device of a step of a ring all-reduce. It belongs to NCCL's part of
// distributed/ and not to a tensor operation, so it is here and not in core/kernels.h.
// core/kernels/reduction.h does the same on the CPU, with the same bits.
#pragma once

#include <cstdint>

#include "ringgrad/core/tensor.h"

namespace ringgrad::cuda {

enum class Combination : uint8_t { Sum, Min, Max };

// Returns the dtype of partial results: float32 for 16-bit floats, which are rounded once at the
// end, and otherwise the dtype itself.
DType partial_dtype(DType dtype);

// y = (own + incoming) / divisor, or the smaller or larger of the two, where NaN wins. Integers
// divide towards zero. The arrays have the same length and are contiguous. own has any dtype but
// bool; y and incoming have that dtype or partial_dtype(). y may be own or incoming if it has the
// same dtype. Throws DTypeError.
void combine(Stream stream, const Tensor& y, const Tensor& own, const Tensor& incoming,
             Combination combination, int divisor = 1);

}  // namespace ringgrad::cuda
