// Buffers as float64 numbers that can be added up over the ranks, so that no bit of a buffer is lost on the way.
//
// A float64 holds every float32 and every 16-bit float. Integers and booleans travel as words of at most 32 bits, which
// it holds, too. A float64 buffer would be rounded by the weights; so its ranks first learn one rank's values, the
// base, and add up how far they are apart from it. Where all have the same bits that is 0, and the bits stay as they
// are.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// As how many numbers a buffer travels.
int64_t count_of_numbers(const Tensor& buffer);
// These numbers, contiguous [n], in a dtype that float64 holds exactly. They share the buffer's memory if it is
// contiguous.
Tensor numbers_of(const Tensor& buffer);
// Writes float64 numbers [n] into the buffer that they stand for.
void take_numbers(const Tensor& buffer, const Tensor& numbers);

// factor · x, in place. A product of -0.0 stays one.
void multiply(const Tensor& x, double factor);

// x - base, and 0 where both are the same, infinite or not.
Tensor apart_from(const Tensor& base, const Tensor& x);
// base + apart, and the base itself where that is 0.
Tensor moved_from(const Tensor& base, const Tensor& apart);

}  // namespace ringgrad
