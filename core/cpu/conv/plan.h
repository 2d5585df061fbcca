// Chooses an algorithm for each of the CPU's convolutions. One function contains all rules.
#pragma once

#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad::conv {

// Depends only on the problem and on whether products of bfloat16 numbers use tiles.
ConvPlan plan(const ConvProblem& problem, bool tiles);
// Does the same for this process: amx::tiles() tells whether there are tiles.
ConvPlan plan(const ConvProblem& problem);

// Returns true if a Winograd scheme covers the filter, with equal strides and padding on both axes
// and without dilation: 3 x 3 with stride 1, or with stride 2 and padding 1; 5 x 5 with stride 1.
bool has_winograd(const ConvProblem& problem);

}  // namespace ringgrad::conv
