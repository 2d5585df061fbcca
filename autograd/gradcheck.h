// Checks an operation's backward against central differences: (f(x + h) - f(x - h)) / 2h.
//
// The comparison is of one number per input element, d(Σ v · f(x)) / dx, for fixed pseudo-random
// weights v: a wrong backward agrees with it by chance only. Use it on points away from kinks and
// ties, where f is differentiable.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

using TensorFunction = std::function<Tensor(const std::vector<Tensor>& inputs)>;

struct GradcheckOptions {
  double step = 1e-6;  // h; its truncation error is O(h²), its rounding error O(2⁻⁵³ |f| / h)
  double tolerance = 1e-6;  // of |analytic - numeric|, relative to max(1, |analytic|, |numeric|)
};

struct GradcheckResult {
  bool passed = false;
  double worst = 0;     // the largest error, relative as above; NaN where either side is not finite
  std::string message;  // the node, input, index and both values of the worst element

  explicit operator bool() const { return passed; }
};

// Differentiates `f` in every input marked with requires_grad; f must be deterministic. REQUIRES:
// those inputs and the output are float64, and inputs do not share memory. Throws DTypeError
// otherwise, Error when f builds no graph. The inputs' values are restored, and their gradients are
// left as they were.
GradcheckResult gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options = {});

}  // namespace ringgrad
