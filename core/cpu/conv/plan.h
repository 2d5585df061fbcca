// Chooses an algorithm for each of the CPU's convolutions: the one function that knows all rules.
#pragma once

#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad::conv {

// A pure function of the problem and of whether products of bfloat16 numbers use tiles.
ConvPlan plan(const ConvProblem& problem, bool tiles);
// The same for this process: amx::tiles() says whether there are tiles.
ConvPlan plan(const ConvProblem& problem);

// True if a Winograd scheme covers the filter, on square strides and padding, without dilation:
// 3 x 3 with stride 1, or with stride 2 and padding 1; 5 x 5 with stride 1.
bool has_winograd(const ConvProblem& problem);

}  // namespace ringgrad::conv
