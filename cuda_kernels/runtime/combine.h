// What a step of a ring all-reduce does on the device with what has arrived. It belongs to no
// tensor operation but to NCCL's part of distributed/, so it stands here and not in core/kernels.h;
// on the CPU it is core/kernels/reduction.h, and the results are the same, bit for bit.
#pragma once

#include <cstdint>

#include "ringgrad/core/tensor.h"

namespace ringgrad::cuda {

enum class Combination : uint8_t { Sum, Min, Max };

// The dtype of partial results: float32 for 16-bit floats, which are rounded once, at the end; else
// the dtype itself.
DType partial_dtype(DType dtype);

// y = (own + incoming) / divisor, or the smaller or larger of the two, where NaN wins; integers
// divide towards zero. Arrays of the same length, contiguous: own of any dtype but bool, y and
// incoming of that or of partial_dtype(). y may be own or incoming where it has the same dtype.
// Throws DTypeError.
void combine(Stream stream, const Tensor& y, const Tensor& own, const Tensor& incoming,
             Combination combination, int divisor = 1);

}  // namespace ringgrad::cuda
