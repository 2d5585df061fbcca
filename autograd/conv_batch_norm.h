// A convolution and the batch norm of its result as one operation. What batch norm sums over whole
// images is then summed by the convolutions beside it: see core/kernels/conv_batch_norm.h, which
// also has the switch.
#pragma once

#include "ringgrad/autograd/classifier_ops.h"

namespace ringgrad {

// The tensors of batch_norm(), each of which may be undefined.
struct BatchNormTensors {
  Tensor weight = {};
  Tensor bias = {};
  Tensor running_mean = {};
  Tensor running_var = {};
};

// Returns batch_norm(conv2d(x, w, {}, conv), …, options): the arguments, errors, results, gradients
// and running statistics are theirs. It is one node of the graph if `options.training` holds and
// fuses_batch_norm() says so, and otherwise calls the two.
//
// If x is the output of such a node, its gradient is rectified and summed while it is computed.
// This needs the last gradient to reach that node, and no hook that would see it. A device's kernel
// may sum in another order than batch norm's own. Then hooks, recomputation (nn/recompute.h), and
// grad() instead of backward(), may change a gradient's last bits.
Tensor conv2d_batch_norm(const Tensor& x, const Tensor& w, const BatchNormTensors& tensors,
                         const Conv2dOptions& conv = {}, const BatchNormOptions& options = {});

}  // namespace ringgrad
