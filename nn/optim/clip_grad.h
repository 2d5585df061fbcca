#pragma once

#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad::optim {

// Scales all gradients together so that their joint 2-norm is at most max_norm (Pascanu et al. 2013), and returns the
// norm they had, a scalar on their device: nothing waits for it. As in PyTorch the factor is max_norm / (norm + 1e-6)
// where that is below 1. A gradient that is NaN or infinite leaves NaN in its place and 0 elsewhere (in PyTorch a NaN
// spreads to every gradient; here it must not reach the gaps of an arena, see nn/arena.h). Parameters on one device;
// those without a gradient stay without.
Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm);

}  // namespace ringgrad::optim
