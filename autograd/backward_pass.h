// A pass over the tape, for Tensor::backward() and autograd::grad(). Private to autograd.
#pragma once

#include "ringgrad/autograd/graph.h"

namespace ringgrad {

// What a pass is asked for. Where gradients are to be captured they go here, and to no leaf.
struct BackwardRequest {
  bool retain_graph = false;
  std::vector<Edge> capture = {};
  std::vector<Tensor> captured = {};  // one for each of these
};

// Throws Error in the name of `name` where this thread runs a backward pass.
void check_outside_pass(const char* name);
// The gradient from which a pass begins at `output`.
Tensor first_gradient(const char* name, const Tensor& output, const Tensor& given);
// From `root`, whose gradient is `grad`, to the leaves.
void run_backward_pass(const Edge& root, Tensor grad, BackwardRequest& request);

}  // namespace ringgrad
