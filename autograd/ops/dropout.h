#pragma once

#include "ringgrad/core/random.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Zeroes each element with probability p and scales the others by 1 / (1 - p) (Srivastava et al. 2014); x itself when
// not training. Error unless 0 <= p <= 1. Draws from the device's default generator; no mask is kept: backward draws
// the same numbers again.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

}  // namespace ringgrad
