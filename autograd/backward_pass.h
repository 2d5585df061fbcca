// A pass over the tape, for Tensor::backward() and autograd::grad(). Private to autograd.
#pragma once

#include <unordered_set>

#include "ringgrad/autograd/twice.h"

namespace ringgrad {

// The options of a pass. If `capture` is not empty, gradients go to `captured` and to no leaf.
struct BackwardRequest {
  bool retain_graph = false;
  // Keeps a graph of the gradients. With it the graph of the pass is retained.
  const Twice* graph = nullptr;
  std::vector<Edge> capture = {};
  std::vector<Tensor> captured = {};  // one for each captured edge
  // The captured edges' nodes, and those between them and the root. No other node takes part.
  std::unordered_set<const Node*> way = {};
};

// Throws Error in the name of `name` if this thread runs a backward pass.
void check_outside_pass(const char* name);
// Returns the gradient at `output` with which a pass begins.
Tensor first_gradient(const char* name, const Tensor& output, const Tensor& given);
// Runs from `root`, whose gradient is `grad`, to the leaves.
void run_backward_pass(const Edge& root, Tensor grad, BackwardRequest& request);

}  // namespace ringgrad
