// The graphs of a convolution's three passes. Private to this folder and its tests.
#pragma once

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_graph.h"

namespace ringgrad::cuda {

enum class ConvPass { Forward, BackwardInput, BackwardWeight };

// Everything about a convolution but where its tensors are. x and w stand for dx and dw in the
// backward passes, y for dy; filters have the images' dtype and format.
struct ConvShapes {
  DType dtype;
  cudnnTensorFormat_t format;
  Shape x;
  Shape w;
  Shape y;
  Conv2dOptions options;
};

// Its tensors are x, w, y. Throws NotImplementedError where cuDNN knows no such convolution.
std::shared_ptr<OperationGraph> conv2d_graph(ConvPass pass, const ConvShapes& shapes);

}  // namespace ringgrad::cuda
