#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// e^x / sum e^x along a dimension (0 of a scalar), safe from overflow; log_softmax is its logarithm.
// IndexError for a dimension that is not there, DTypeError for integers.
Tensor softmax(const Tensor& x, int dim = -1);
Tensor log_softmax(const Tensor& x, int dim = -1);

}  // namespace ringgrad
