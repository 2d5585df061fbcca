// Converts buffers to float64 numbers that can be summed over the ranks without losing a bit.
//
// A float64 holds every float32 and every 16-bit float. Integers and booleans travel as words of at
// most 32 bits, which it holds, too. A float64 buffer would be rounded by the weights. So the ranks
// first learn one rank's values, the base, and then sum the differences from it. If all ranks have
// the same bits, the sum is 0 and the bits stay as they are.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Returns the number of numbers that represent the buffer.
int64_t count_of_numbers(const Tensor& buffer);
// Returns these numbers, contiguous [n], in a dtype that float64 holds exactly. They share the
// buffer's memory if it is contiguous.
Tensor numbers_of(const Tensor& buffer);
// Writes float64 numbers [n] into the buffer that they represent.
void take_numbers(const Tensor& buffer, const Tensor& numbers);

// Writes a buffer's summand to packed [n], float64: its numbers times a weight, as differences from
// `base` if that is defined. The weight is `samples`, so that the mean can be taken. Integers and
// booleans have no mean: their weight is 1 for the `first` buffer of the sum, else 0. A buffer of
// weight 0 adds nothing, whatever it holds (0 · infinity is not zero).
void pack_buffer(const Tensor& packed, const Tensor& buffer, const Tensor& base, double samples,
                 bool first);
// Writes the sum into the buffer, in which all weights together are `samples`. Integers and
// booleans, which have no mean, become the sum. Changes `packed`.
void unpack_buffer(const Tensor& buffer, const Tensor& packed, const Tensor& base, double samples);

}  // namespace ringgrad
