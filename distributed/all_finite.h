// Is there a NaN or an infinity in it?
#pragma once

#include "core/tensor.h"

namespace ringgrad {

// False when an element is NaN or infinite. One pass over memory at the speed of reading. REQUIRES: x floating,
// contiguous, on the CPU.
bool all_finite(const Tensor& x);

}  // namespace ringgrad
