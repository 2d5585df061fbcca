// Limits gradients before a step.
#pragma once

#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad::optim {

// Scales all gradients together so that their joint 2-norm is at most max_norm (Pascanu et al.
// 2013). Returns the norm before, a scalar on their device, without waiting. As in PyTorch the
// factor is max_norm / (norm + 1e-6) if that is below 1. If a gradient is NaN or infinite, its
// element becomes NaN and all others 0. (In PyTorch NaN spreads to every gradient; here it must not
// reach the gaps of an arena, see autograd/arena.h.) The parameters are on one device. Those
// without a gradient stay without. If processes share an optimizer's steps, the call is collective
// and takes all its parameters; then their sum is added up in another order, part by part.
Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, Real max_norm);

// Clamps each element of each gradient to [-value, value]. NaN stays NaN. Parameters are as above.
void clip_grad_value_(const std::vector<Tensor>& parameters, Real value);

}  // namespace ringgrad::optim
