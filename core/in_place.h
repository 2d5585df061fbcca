// Writing to a tensor that exists already, instead of making a new one.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// True when several elements lie in one place: a dimension longer than 1 with stride 0, as expand() gives. (Of strides
// that overlap otherwise, which only as_strided() can give, nothing is said.)
bool has_internal_overlap(const Tensor& x);

// Every write to the elements of x begins here: raises its version, so that a graph that has saved x finds out. Throws
// Error in the name of `operation` where several elements lie in one place, of which only the last would be kept, and
// where x was computed from leaves that want a gradient: the write is no part of the graph, whose gradients would be
// wrong.
void begin_write(const char* operation, const Tensor& x);

}  // namespace ringgrad
