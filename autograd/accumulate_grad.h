// AccumulateGrad: the sink at a leaf. It is the one place where param.grad changes during backward,
// and it runs once per backward, when the leaf's gradient is complete: what "gradient ready" means.
#pragma once

#include <functional>
#include <memory>

#include "ringgrad/autograd/graph.h"
#include "ringgrad/autograd/hook_handle.h"

namespace ringgrad {

// The sink node for a leaf; used by gradient_edge().
std::shared_ptr<Node> make_accumulate_grad(const Tensor& leaf);

// hook(leaf) runs once per backward that reaches the leaf, on the engine's thread for the leaf's
// device, after leaf.grad() has its final value. Hooks run in order of registration; an exception
// from one ends backward() and is rethrown there. A hook may call queue_final_callback(), and add
// and remove hooks of its leaf: from the next backward on the new ones run, too. REQUIRES: a leaf
// that requires grad.
HookHandle register_post_accumulate_grad_hook(const Tensor& leaf,
                                              std::function<void(const Tensor& leaf)> hook);

}  // namespace ringgrad
