#include "ringgrad/cuda_kernels/vendor/cudnn_norm_graph.h"

#include "ringgrad/cuda_kernels/vendor/cudnn_call.h"

namespace ringgrad::cuda {
namespace {

// The tensors of a batch normalisation graph.
class NormGraph {
 public:
  explicit NormGraph(const NormShapes& shapes) : shapes_(shapes) {}

  const GraphPart& images() { return graph->tensor(shapes_.images, type(), shapes_.format); }
  const GraphPart& channels() {
    return graph->tensor({1, shapes_.images[1], 1, 1}, CUDNN_DATA_FLOAT, shapes_.format);
  }
  const GraphPart& between(cudnnDataType_t type) {
    return graph->intermediate(shapes_.images, type, shapes_.format);
  }
  cudnnDataType_t type() const { return cudnn_type(shapes_.dtype); }

  const std::shared_ptr<OperationGraph> graph = std::make_shared<OperationGraph>();

 private:
  NormShapes shapes_;
};

}  // namespace

std::shared_ptr<OperationGraph> batch_norm_graph(const NormShapes& shapes, bool residual,
                                                 bool relu) {
  NormGraph make(shapes);
  OperationGraph& graph = *make.graph;
  const GraphPart &x = make.images(), &y = make.images(), &mean = make.channels(),
                  &rstd = make.channels();
  const GraphPart& weight = make.channels();
  const GraphPart& bias = make.channels();
  const GraphPart& eps = graph.number();
  const GraphPart& normalised = residual || relu ? make.between(CUDNN_DATA_FLOAT) : y;
  graph.operation(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_BATCH_NORM)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_NORM_FWD_TRAINING)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, mean)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, rstd)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, weight)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, bias)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, eps)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, normalised)
      .finish();
  const GraphPart* sum = &normalised;
  if (residual) {
    const GraphPart& added = make.images();
    sum = relu ? &make.between(CUDNN_DATA_FLOAT) : &y;
    graph.pointwise(CUDNN_POINTWISE_ADD, normalised, &added, *sum);
  }
  if (relu) graph.pointwise(CUDNN_POINTWISE_RELU_FWD, *sum, nullptr, y);
  return make.graph;
}

std::shared_ptr<OperationGraph> batch_norm_backward_graph(const NormShapes& shapes) {
  NormGraph make(shapes);
  OperationGraph& graph = *make.graph;
  const GraphPart& x = make.images();
  const GraphPart& dy = make.images();
  const GraphPart& dx = make.images();
  const GraphPart& mean = make.channels();
  const GraphPart& rstd = make.channels();
  const GraphPart& weight = make.channels();
  const GraphPart& sum_dy_xhat = make.channels();
  const GraphPart& sum_dy = make.channels();
  graph.operation(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_BATCH_NORM)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, mean)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, rstd)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, dy)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, weight)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, sum_dy_xhat)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, sum_dy)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, dx)
      .finish();
  return make.graph;
}

}  // namespace ringgrad::cuda
