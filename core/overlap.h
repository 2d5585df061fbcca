// Finds elements that share memory, exactly for all strides. The addresses decide most cases;
// otherwise each element is compared.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// The first and the last place of a tensor's elements, counted in elements from x[0, 0, …]. Strides
// may be negative, and a channel-blocked tensor's padding counts. What lies beyond any storage
// becomes 2^62: as_strided() asks about mistaken strides, too, and their products would wrap.
struct Extent {
  int64_t first = 0;
  int64_t last = 0;
};
Extent extent(const Tensor& x);

// Returns true if an element of `a` and one of `b` share a byte. Returns false if a tensor is
// undefined or has no elements. has_internal_overlap() (core/tensor.h) answers the same for two
// elements of one tensor.
bool have_memory_in_common(const Tensor& a, const Tensor& b);

}  // namespace ringgrad
