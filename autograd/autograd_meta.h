// AutogradMeta completes core's opaque pointer: what a tensor knows about its place in the graph.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "ringgrad/autograd/node.h"

namespace ringgrad {

struct AutogradMeta {
  bool requires_grad = false;     // a leaf that wants a gradient
  Tensor grad;                    // of a leaf, once backward has reached it
  std::shared_ptr<Node> grad_fn;  // the node that made a non-leaf
  int output = 0;                 // which of grad_fn's outputs this tensor is

  std::weak_ptr<Node> accumulator;  // of a leaf: its AccumulateGrad node, shared by all uses in living graphs
  std::map<int, std::function<void(const Tensor&)>> post_accumulate_hooks;  // in order of registration
  int next_hook = 0;
};

// The meta of `tensor`, made if need be.
AutogradMeta& autograd_meta(const Tensor& tensor);

// The edge that takes d(loss)/d(tensor): grad_fn, or the leaf's AccumulateGrad; null where no gradient is wanted.
Edge gradient_edge(const Tensor& tensor);

}  // namespace ringgrad
