// Checks an operation's backward, and the backward of this, against central differences:
// (f(x + h) - f(x - h)) / 2h.
//
// It compares one number per input element, d(Σ v · f(x)) / dx, for fixed pseudo-random weights v.
// A wrong backward agrees with it only by chance. Use it at points away from kinks and ties, where
// f is differentiable.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

using TensorFunction = std::function<Tensor(const std::vector<Tensor>& inputs)>;

struct GradcheckOptions {
  double step = 1e-6;  // h; its truncation error is O(h²), its rounding error O(2⁻⁵³ |f| / h)
  double tolerance = 1e-6;  // for |analytic - numeric|, relative to max(1, |analytic|, |numeric|)
};

struct GradcheckResult {
  bool passed = false;
  double worst = 0;     // the largest error, relative as above; NaN if a side is not finite
  std::string message;  // the node, input, index and both values of the worst element

  explicit operator bool() const { return passed; }
};

// Differentiates `f` with respect to every input that requires grad; f must be deterministic.
// REQUIRES: those inputs and the output are float64, and inputs do not share memory. Otherwise
// throws DTypeError. Throws Error if f builds no graph. The inputs' values are restored, and their
// gradients do not change.
GradcheckResult gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options = {});

// The same of the first derivatives, as autograd::grad() computes them with create_graph: they are
// differentiated in the inputs, and in the gradient of f's result, which has pseudo-random values.
// Throws Error, too, where an operation of f is none that can be differentiated twice.
GradcheckResult gradgradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                              const GradcheckOptions& options = {});

}  // namespace ringgrad
