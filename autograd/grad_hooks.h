// Hooks on the gradients of tensors, leaves or not. They receive a complete gradient and may
// replace it. (register_post_accumulate_grad_hook() in accumulate_grad.h runs after a leaf's
// gradient has been added to its grad.)
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "ringgrad/autograd/hook_handle.h"
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

// Undoes retain_grad(). Returns false if there was nothing to undo.
bool stop_retaining_grad(const Tensor& tensor);

}  // namespace ringgrad
