// Derivatives with respect to any tensors, and derivatives of derivatives.
#pragma once

#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

namespace autograd {

struct GradOptions {
  // One for each output. If it is empty, each output must have one element.
  std::vector<Tensor> grad_outputs = {};
  bool retain_graph = false;
  // The derivatives have a graph of their own, so that they can be differentiated again; the graph
  // of the outputs is retained. Throws Error that names an operation on the way whose backward has
  // no graph; autograd/README.md lists those.
  bool create_graph = false;
  // An input that the outputs do not depend on gives an undefined tensor instead of an Error.
  bool allow_unused = false;
};
// Returns d(outputs)/d(input) for each input, leaf or not, like torch.autograd.grad. Accumulates
// nothing in any leaf.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const GradOptions& options = {});

struct BackwardOptions {
  Tensor grad_output = {};  // without, the output has one element
  bool retain_graph = false;
  // As GradOptions. The gradients in the leaves then have a history that ends at the leaves: each
  // keeps itself alive until its gradient is set anew, as in PyTorch; zero_grad() ends it.
  bool create_graph = false;
};
// output.backward() with these options.
void backward(const Tensor& output, const BackwardOptions& options = {});

// Fills the leaf's gradient, if there is one, with zeros. In place of one with a history there is
// another one then.
void zero_grad(const Tensor& leaf);

}  // namespace autograd

}  // namespace ringgrad
