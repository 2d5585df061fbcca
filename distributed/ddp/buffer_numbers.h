// Converts buffers to float64 numbers that can be summed over the ranks without losing a bit.
//
// A float64 holds every float32 and every 16-bit float. Integers and booleans travel as words of at
// most 32 bits, which it holds, too. A float64 buffer would be rounded by the weights. So the ranks
// first learn one rank's values, the base, and then sum the differences from it. If all ranks have
// the same bits, the sum is 0 and the bits stay as they are.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Returns how many numbers represent the buffer.
int64_t count_of_numbers(const Tensor& buffer);
// Returns these numbers, contiguous [n], in a dtype that float64 holds exactly. They share the
// buffer's memory if it is contiguous.
Tensor numbers_of(const Tensor& buffer);
// Writes float64 numbers [n] into the buffer that they represent.
void take_numbers(const Tensor& buffer, const Tensor& numbers);

// Multiplies x by `factor` in place. A product of -0.0 stays -0.0.
void multiply(const Tensor& x, double factor);

// Returns x - base, and 0 where both are equal, even if they are infinite.
Tensor apart_from(const Tensor& base, const Tensor& x);
// Returns base + apart, and base itself where `apart` is 0.
Tensor moved_from(const Tensor& base, const Tensor& apart);

}  // namespace ringgrad
