// The step of a random data-parallel program as one process computes it.
#pragma once

#include "ringgrad/tests/random/ddp_plan.h"

namespace ringgrad::test {

using Values = std::vector<std::vector<double>>;  // of each parameter, or buffer

// Zeros where there is no gradient.
Values gradients_of(const nn::Module& module);

// What one process computes: the gradient of every parameter, what it may differ by, and the buffers afterwards.
struct Expected {
  Values gradients, bounds;
  std::vector<Tensor> buffers;
  double weight = 0;
};

// `net` has the weights and buffers of before the step, and has those buffers again afterwards.
Expected expected_of(const Plan& plan, RandomNetwork& net, int step);

}  // namespace ringgrad::test
