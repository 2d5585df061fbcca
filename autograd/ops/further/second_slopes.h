// The second derivatives of elementwise functions. Private to autograd/ops/further.
#pragma once

#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// The derivative of an operation's slope by what it saves for backward, x or y, as elementwise()
// has it; undefined where it is 0 everywhere. The numbers are the operation's.
using SecondSlope = Tensor (*)(const Tensor& saved, const std::vector<double>& numbers);

// Throws Error where there is none in the table.
SecondSlope second_slope(const char* name);

}  // namespace ringgrad
