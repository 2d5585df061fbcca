#include "ringgrad/autograd/differentiable.h"

namespace ringgrad {

bool detail::needs_grad(std::span<const Tensor> inputs) {
  if (!grad_enabled()) return false;
  for (const Tensor& input : inputs)
    if (input && input.requires_grad()) return true;
  return false;
}

void detail::record(const char* name, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                    Backward backward) {
  auto node = std::make_shared<Node>(name, next_sequence());
  node->next.reserve(inputs.size());
  for (const Tensor& input : inputs) node->next.push_back(input ? gradient_edge(input) : Edge{});
  node->outputs.reserve(outputs.size());
  for (const Tensor& output : outputs) node->outputs.push_back({output.shape(), output.dtype(), output.device()});
  node->backward = std::move(backward);
  for (size_t i = 0; i < outputs.size(); ++i) {
    AutogradMeta& meta = autograd_meta(outputs[i]);
    meta.grad_fn = node;
    meta.output = static_cast<int>(i);
  }
}

}  // namespace ringgrad
