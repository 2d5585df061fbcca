// The graphs of a convolution's three passes. Private to this folder and its tests.
#pragma once

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_graph.h"

namespace ringgrad::cuda {

enum class ConvPass { Forward, BackwardInput, BackwardWeight };

// Describes a convolution except for its tensors' addresses. x and w stand for dx and dw in the
// backward passes, and y for dy. Filters have the images' dtype and format.
struct ConvShapes {
  DType dtype;
  cudnnTensorFormat_t format;
  Shape x;
  Shape w;
  Shape y;
  Conv2dOptions options;
};

// The graph's tensors are x, w, y. Throws NotImplementedError if cuDNN does not support the
// convolution.
std::shared_ptr<OperationGraph> conv2d_graph(ConvPass pass, const ConvShapes& shapes);

}  // namespace ringgrad::cuda
