#include <algorithm>

#include "ringgrad/autograd/backward_pass.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/grad.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/program_observer.h"

namespace ringgrad {

// Finds the captured edges' nodes that the root reaches, and the nodes from which one of them can
// be reached.
static void find_way(BackwardRequest& request, const Node* root) {
  std::unordered_set<const Node*> captured;
  std::unordered_set<const Node*> seen{root};
  for (const Edge& edge : request.capture) captured.insert(edge.node.get());
  struct Step {
    const Node* node;
    size_t next = 0;  // the edge to visit next
  };
  std::vector<Step> path{{root}};
  while (!path.empty()) {
    auto& [node, next] = path.back();
    if (next < node->next.size()) {
      const Node* below = node->next[next++].node.get();
      if (below && seen.insert(below).second) path.push_back({below});
      continue;
    }
    if (captured.contains(node) || std::ranges::any_of(node->next, [&](const Edge& edge) {
          return request.way.contains(edge.node.get());
        }))
      request.way.insert(node);
    path.pop_back();
  }
}

std::vector<Tensor> autograd::grad(const std::vector<Tensor>& outputs,
                                   const std::vector<Tensor>& inputs, const GradOptions& options) {
  check_outside_pass("grad");
  CHECK(!outputs.empty() && !inputs.empty(), "grad: ", outputs.size(), " outputs and ",
        inputs.size(), " inputs, expected at least one of each");
  CHECK(options.grad_outputs.empty() || options.grad_outputs.size() == outputs.size(),
        "grad: ", options.grad_outputs.size(), " gradients for ", outputs.size(),
        " outputs, expected one for each");
  // One node above all outputs, at which the pass begins.
  const auto root = std::make_shared<Node>("grad", next_sequence());
  Gradients first;
  for (size_t i = 0; i < outputs.size(); ++i) {
    first.push_back(first_gradient(
        "grad", outputs[i], options.grad_outputs.empty() ? Tensor() : options.grad_outputs[i]));
    root->next.push_back(gradient_edge(outputs[i]));
  }
  root->outputs.push_back({{}, first[0].dtype(), first[0].device()});
  root->backward = [first](std::span<const Tensor>) { return first; };
  BackwardRequest request{.retain_graph = options.retain_graph || options.create_graph,
                          .graph = options.create_graph ? twice : nullptr,
                          .capture = {},
                          .captured = std::vector<Tensor>(inputs.size())};
  for (const Tensor& input : inputs) {
    CHECK(input.defined() && input.requires_grad(), "grad: input ", request.capture.size(),
          " requires no gradient; mark it with requires_grad_() before it is used");
    request.capture.push_back(gradient_edge(input));
  }
  find_way(request, root.get());
  run_backward_pass({root, 0}, scalar(0, {first[0].dtype(), first[0].device()}), request);
  for (size_t i = 0; i < inputs.size(); ++i) {
    CHECK(options.allow_unused || request.captured[i], "grad: the outputs do not depend on input ",
          i, ", expected that they do; with allow_unused its gradient is an undefined tensor");
    // One with a history is never written to, so that nobody minds who else holds it.
    if (request.captured[i] && !request.captured[i].requires_grad())
      request.captured[i] = copy_of(request.captured[i], {inputs[i].dtype(), inputs[i].device()});
  }
  return request.captured;
}

void autograd::zero_grad(const Tensor& leaf) {
  const Tensor grad = leaf.grad();
  if (grad && !grad.is_leaf())
    leaf.set_grad(zeros(grad.shape(), {grad.dtype(), grad.device()}));
  else if (grad)
    fill_(grad, 0);
}

void autograd::backward(const Tensor& output, const BackwardOptions& options) {
  check_outside_pass("backward");
  Tensor grad = first_gradient("backward", output, options.grad_output);
  if (program_observer) program_observer->backward();
  BackwardRequest request{.retain_graph = options.retain_graph || options.create_graph,
                          .graph = options.create_graph ? twice : nullptr};
  run_backward_pass(gradient_edge(output), std::move(grad), request);
}

void Tensor::backward(const Tensor& grad_output, Flag retain_graph, Flag create_graph) const {
  autograd::backward(*this, {grad_output, retain_graph, create_graph});
}

}  // namespace ringgrad
