// Computes the step of a random data-parallel program in one process.
#pragma once

#include "ringgrad/tests/random/ddp_plan.h"

namespace ringgrad::test {

using Values = std::vector<std::vector<double>>;  // the values of each parameter, or buffer

// Returns zeros for a parameter without a gradient.
Values gradients_of(const nn::Module& module);

// The results of one process: the gradient of every parameter, the bound of its difference, and the
// buffers after the step.
struct Expected {
  Values gradients;
  Values bounds;
  std::vector<Tensor> buffers;
  double weight = 0;
};

// `net` has the weights and buffers from before the step. Its buffers are restored afterwards.
Expected expected_of(const Plan& plan, RandomNetwork& net, int step);

}  // namespace ringgrad::test
