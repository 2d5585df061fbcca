#include "ringgrad/autograd/differentiable.h"

#include "ringgrad/autograd/twice.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {

SavedTensor::SavedTensor(const Tensor& tensor, int from) : from_(from) {
  if (!tensor) return;
  tensor_ = tensor.detach();
  version_ = tensor.storage()->version();
}

const Tensor& SavedTensor::get() const {
  CHECK(!tensor_ || tensor_.storage()->version() == version_, current_op(), ": a tensor of shape ",
        tensor_.shape(), " saved for backward was modified in place (version ",
        tensor_.storage()->version(), ", saved at version ", version_,
        "), or another view of its memory was, such as a parameter of the same "
        "arena; modify it after ",
        "backward, or modify a copy");
  return saved_with_history ? saved_with_history(tensor_, from_) : tensor_;
}

bool detail::needs_grad(std::span<const Tensor> inputs) {
  if (!grad_enabled()) return false;
  for (const Tensor& input : inputs)
    if (input && input.requires_grad()) return true;
  return false;
}

void detail::record(const char* name, std::span<const Tensor> inputs,
                    std::span<const Tensor> outputs, Backward backward) {
  auto node = std::make_shared<Node>(name, next_sequence());
  node->next.reserve(inputs.size());
  for (const Tensor& input : inputs) node->next.push_back(input ? gradient_edge(input) : Edge{});
  node->outputs.reserve(outputs.size());
  for (const Tensor& output : outputs) node->outputs.push_back(info_of(output));
  node->backward = std::move(backward);
  for (size_t i = 0; i < outputs.size(); ++i) {
    AutogradMeta& meta = autograd_meta(outputs[i]);
    meta.grad_fn = node;
    meta.output = static_cast<int>(i);
  }
  if (tape_observer) tape_observer->recorded(*node, inputs, outputs);
}

Tensor with_fused(Tensor y, const char* what) {
  if (y.requires_grad()) autograd_meta(y).grad_fn->fused = what;
  return y;
}

}  // namespace ringgrad
