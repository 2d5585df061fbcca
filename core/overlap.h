// Which elements lie in one place in memory. Exact for all strides; where a look at the addresses does not decide it,
// each element is looked at.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Whether an element of `a` and one of `b` have a byte in common; has_internal_overlap() (core/tensor.h) says so of two
// elements of one tensor. False where a tensor is undefined, or without elements.
bool have_memory_in_common(const Tensor& a, const Tensor& b);

}  // namespace ringgrad
