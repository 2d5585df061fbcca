// AccumulateGrad: the sink at a leaf. It is the one place where param.grad changes during backward, and it runs once
// per backward, when the leaf's gradient is complete: what "gradient ready" means.
#pragma once

#include <functional>
#include <memory>

#include "ringgrad/autograd/graph.h"

namespace ringgrad {

// The sink node for a leaf; used by gradient_edge().
std::shared_ptr<Node> make_accumulate_grad(const Tensor& leaf);

// Removes its hook when destroyed, so that a hook never outlives what it refers to.
class HookHandle {
 public:
  HookHandle() = default;
  HookHandle(std::weak_ptr<AutogradMeta> meta, int id) : meta_(std::move(meta)), id_(id) {}
  HookHandle(HookHandle&& other) noexcept : meta_(std::move(other.meta_)), id_(other.id_) { other.meta_.reset(); }
  HookHandle& operator=(HookHandle&& other) noexcept;
  ~HookHandle() { remove(); }
  void remove();

 private:
  std::weak_ptr<AutogradMeta> meta_;
  int id_ = 0;
};

// hook(leaf) runs once per backward that reaches the leaf, on the engine's thread for the leaf's device, after
// leaf.grad() has its final value. Hooks run in order of registration; an exception from one ends backward() and is
// rethrown there. A hook may call queue_final_callback(), but not remove itself. REQUIRES: a leaf that requires grad.
[[nodiscard]] HookHandle register_post_accumulate_grad_hook(const Tensor& leaf,
                                                            std::function<void(const Tensor& leaf)> hook);

}  // namespace ringgrad
