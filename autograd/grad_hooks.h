// Hooks on the gradients of tensors, leaves or not. They receive a complete gradient and may
// replace it. (register_post_accumulate_grad_hook() in accumulate_grad.h runs after a leaf's
// gradient has been added to its grad.)
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// The hooks of one tensor, in order of registration. The tensor shares them with the node that
// receives its gradient.
struct GradHooks {
  std::map<int, std::function<Tensor(const Tensor& grad)>> hooks;
  int next = 0;

  // Returns the gradient after all hooks. Throws if a hook returns another shape, dtype or device.
  Tensor run(Tensor grad) const;
};

// Refers to a hook. The hook stays if the handle goes out of scope, as in PyTorch.
class GradHookHandle {
 public:
  GradHookHandle() = default;
  GradHookHandle(std::weak_ptr<GradHooks> hooks, int id) : hooks_(std::move(hooks)), id_(id) {}
  void remove();

 private:
  std::weak_ptr<GradHooks> hooks_;
  int id_ = 0;
};

// Undoes retain_grad(). Returns false if there was nothing to undo.
bool stop_retaining_grad(const Tensor& tensor);

}  // namespace ringgrad
