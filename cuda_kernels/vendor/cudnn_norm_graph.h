// The graphs of batch normalisation in training. Private to this folder and its tests.
#pragma once

#include "ringgrad/cuda_kernels/vendor/cudnn_graph.h"

namespace ringgrad::cuda {

// Images [N, C, H, W] of one dtype and format. Everything per channel is float32.
struct NormShapes {
  Shape images;
  DType dtype;
  cudnnTensorFormat_t format;
};

// y = act(weight (x - mean) rstd + bias + residual), where act is ReLU or the identity and rstd = 1
// / sqrt(var + eps). The graph's tensors are x, y, mean, rstd, weight, bias, eps (a number) and, if
// it exists, residual.
std::shared_ptr<OperationGraph> batch_norm_graph(const NormShapes& shapes, bool residual,
                                                 bool relu);

// The gradients of such a y without act and residual. The graph's tensors are x, dy, dx, mean,
// rstd, weight, sum_dy_xhat, sum_dy.
std::shared_ptr<OperationGraph> batch_norm_backward_graph(const NormShapes& shapes);

}  // namespace ringgrad::cuda
