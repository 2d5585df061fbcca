// Hooks on the gradients of tensors, leaves or not: they see a gradient when it is complete, and
// may replace it. (register_post_accumulate_grad_hook(), in accumulate_grad.h, sees what a leaf has
// after all.)
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// The hooks of one tensor, in order of registration; the tensor and the node that computes with its
// gradient share them.
struct GradHooks {
  std::map<int, std::function<Tensor(const Tensor& grad)>> hooks;
  int next = 0;

  // What becomes of a complete gradient. Throws where a hook returns another shape, dtype or
  // device.
  Tensor run(Tensor grad) const;
};

// Names a hook; that it goes out of scope means nothing, as in PyTorch.
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
