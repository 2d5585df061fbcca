// A pass over the tape that keeps a graph of the gradients (create_graph) calls these functions.
// autograd/ops/further/twice.cpp registers them. Private to autograd.
#pragma once

#include <functional>

#include "ringgrad/autograd/graph.h"
#include "ringgrad/core/kernels/classifier_kernels.h"

namespace ringgrad {

// Gives SavedTensor::get() its result while a closure of such a pass runs on this thread; else
// null.
using SavedWithHistory = const Tensor& (*)(const Tensor& saved, int from);
inline constinit thread_local SavedWithHistory saved_with_history = nullptr;

struct Twice {
  // The closure's gradients, and the sum of two gradients; of an undefined one and another a copy
  // of this.
  Gradients (*run)(const std::shared_ptr<Node>& node, std::span<const Tensor> grad_outputs);
  Tensor (*sum)(const Tensor& a, const Tensor& b);

  // The gradients that the running closure returns, with their history.
  using Slope = std::function<void(const Tensor& dx, const Tensor& dy, const Tensor& saved)>;
  Tensor (*elementwise)(const Tensor& dy, const Tensor& saved, const Slope& slope,
                        const std::vector<double>& numbers);
  Gradients (*linear)(const Tensor& dy, const Tensor& x, const Tensor& w);
  Gradients (*conv2d)(const Tensor& dy, const Tensor& x, const Tensor& w,
                      const Conv2dOptions& options);
  Tensor (*max_pool2d)(const Tensor& dy, const Tensor& index);
  // `mean` and `var` are undefined in training, y without an activation.
  Gradients (*batch_norm)(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& y,
                          const Tensor& mean, const Tensor& var, double eps);
  Tensor (*cross_entropy)(const Tensor& dy, const Tensor& x, const Tensor& target,
                          const Tensor& class_weight, const Tensor& weight_sum,
                          const kernels::CrossEntropyOptions& options);
};
inline const Twice* twice = nullptr;

}  // namespace ringgrad
