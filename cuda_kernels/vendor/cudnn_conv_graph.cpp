#include "ringgrad/cuda_kernels/vendor/cudnn_conv_graph.h"

#include "ringgrad/cuda_kernels/vendor/cudnn_call.h"

namespace ringgrad::cuda {
namespace {

// cuDNN's names of a pass and its attributes.
struct PassNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t x;
  cudnnBackendAttributeName_t w;
  cudnnBackendAttributeName_t y;
  cudnnBackendAttributeName_t convolution;
  cudnnBackendAttributeName_t alpha;
  cudnnBackendAttributeName_t beta;
};

const PassNames& names_of(ConvPass pass) {
  static constexpr PassNames kForward{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  static constexpr PassNames kBackwardInput{
      CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
  static constexpr PassNames kBackwardWeight{
      CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  switch (pass) {
    case ConvPass::Forward: return kForward;
    case ConvPass::BackwardInput: return kBackwardInput;
    default: return kBackwardWeight;
  }
}

}  // namespace

std::shared_ptr<OperationGraph> conv2d_graph(ConvPass pass, const ConvShapes& g) {
  const auto graph = std::make_shared<OperationGraph>();
  const cudnnDataType_t type = cudnn_type(g.dtype);
  const GraphPart& x = graph->tensor(g.x, type, g.format);
  const GraphPart& w = graph->tensor(g.w, type, g.format);
  const GraphPart& y = graph->tensor(g.y, type, g.format);
  const bool wide = g.dtype == DType::Float64;
  const auto pair = [](Pair p) { return std::vector<int64_t>{p.h, p.w}; };
  const auto set = [](GraphPart& part, cudnnBackendAttributeName_t name,
                      const std::vector<int64_t>& values) {
    part.set(name, std::span<const int64_t>(values));
  };
  GraphPart& convolution = graph->part(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2});
  set(convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, pair(g.options.stride));
  set(convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, pair(g.options.padding));
  set(convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, pair(g.options.padding));
  set(convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, pair(g.options.dilation));
  convolution.finish();

  const PassNames& names = names_of(pass);  // groups follow from the shapes
  GraphPart& node = graph->operation(names.operation);
  node.set(names.x, x).set(names.w, w).set(names.y, y).set(names.convolution, convolution);
  if (wide)
    node.set(names.alpha, 1.0).set(names.beta, 0.0);
  else
    node.set(names.alpha, 1.0f).set(names.beta, 0.0f);
  node.finish();
  return graph;
}

}  // namespace ringgrad::cuda
