// AccumulateGrad: the sink at a leaf. It runs once per backward, when the leaf's gradient is
// complete, and adds that gradient to leaf.grad(). It adds nothing if the gradient was written
// there already (gradient_home.h). Then it runs the leaf's hooks: this is the moment "gradient
// ready".
#pragma once

#include <functional>
#include <memory>

#include "ringgrad/autograd/graph.h"
#include "ringgrad/autograd/hook_handle.h"

namespace ringgrad {

// Makes the sink node for a leaf. gradient_edge() calls it.
std::shared_ptr<Node> make_accumulate_grad(const Tensor& leaf);

// hook(leaf) runs once per backward that reaches the leaf, after leaf.grad() has its final value,
// on the engine's thread for the leaf's device. Hooks run in order of registration. An exception
// from one ends backward() and is rethrown there. A hook may call queue_final_callback(), and may
// add and remove hooks of its leaf; added ones run from the next backward on. REQUIRES: a leaf that
// requires grad.
HookHandle register_post_accumulate_grad_hook(const Tensor& leaf,
                                              std::function<void(const Tensor& leaf)> hook);

}  // namespace ringgrad
