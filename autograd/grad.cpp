#include "ringgrad/autograd/backward_pass.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad {

std::vector<Tensor> autograd::grad(const std::vector<Tensor>& outputs,
                                   const std::vector<Tensor>& inputs, const GradOptions& options) {
  check_outside_pass("grad");
  CHECK(!options.create_graph,
        "grad: create_graph asks for derivatives of derivatives, which are not there: what an ",
        "operation saves for backward has no history; take finite differences of the gradients, "
        "or write the gradient ",
        "as operations");
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
  BackwardRequest request{.retain_graph = options.retain_graph,
                          .capture = {},
                          .captured = std::vector<Tensor>(inputs.size())};
  for (const Tensor& input : inputs) {
    CHECK(input.defined() && input.requires_grad(), "grad: input ", request.capture.size(),
          " requires no gradient; mark it with requires_grad_() before it is used");
    request.capture.push_back(gradient_edge(input));
  }
  run_backward_pass({root, 0}, scalar(0, {first[0].dtype(), first[0].device()}), request);
  for (size_t i = 0; i < inputs.size(); ++i) {
    CHECK(options.allow_unused || request.captured[i], "grad: the outputs do not depend on input ",
          i, ", expected that they do; with allow_unused its gradient is an undefined tensor");
    if (request.captured[i])
      request.captured[i] = copy_of(request.captured[i], {inputs[i].dtype(), inputs[i].device()});
  }
  return request.captured;
}

}  // namespace ringgrad
