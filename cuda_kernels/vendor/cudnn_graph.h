// cuDNN's graph API as far as our kernels need it: operations on tensors make a graph, cuDNN names
// the engines that could run it, the best by its own estimate first, and an engine with its
// settings becomes a plan. Private to this folder and its tests. Plans are checked without a GPU
// (tests/cuda/cudnn_plans_test.cpp).
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "ringgrad/core/dtype.h"
#include "ringgrad/core/shape.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_graph_part.h"

namespace ringgrad::cuda {

// What plans are for: the device of a handle, or one that is only described, where they are looked
// at and not run.
struct GraphTarget {
  cudnnHandle_t handle = nullptr;
  const GraphPart* described = nullptr;
};
// A device by its properties, as cuDNN itself writes them down in JSON. Neither a GPU nor its
// driver is needed.
GraphPart described_device(const std::string& json);

// What cuDNN may expect of addresses, in bytes.
inline constexpr int64_t kGraphAlignment = 16;

// Built from the front: tensors, then the operations on them.
class OperationGraph {
 public:
  OperationGraph() = default;
  OperationGraph(const OperationGraph&) = delete;
  ~OperationGraph() {
    while (!parts_.empty()) parts_.pop_back();
  }

  // A tensor in memory. Its address is one of those that a plan is run with, in this order.
  const GraphPart& tensor(const Shape& nchw, cudnnDataType_t dtype, cudnnTensorFormat_t format);
  // A float32 that the host gives: its address stands among the others.
  const GraphPart& number();
  // What one operation hands to the next, never in memory.
  const GraphPart& intermediate(const Shape& nchw, cudnnDataType_t dtype,
                                cudnnTensorFormat_t format);

  // Something that operations name, to be finished by the caller.
  GraphPart& part(cudnnBackendDescriptorType_t type) { return parts_.emplace_back(type); }
  // To be finished by the caller, too.
  GraphPart& operation(cudnnBackendDescriptorType_t type);
  // y = mode(x[, b]), computed in float32.
  void pointwise(cudnnPointwiseMode_t mode, const GraphPart& x, const GraphPart* b,
                 const GraphPart& y);

  int64_t tensors() const { return tensors_; }  // with numbers: how many addresses there are

  // Returns the engines, with their settings, that keep our promises for `dtype`: the same sums
  // every time, float32 computed in float32 (in TF32 if allows_tf32()), 16-bit numbers summed in
  // float32. If cuDNN's heuristics name none, its engines of last resort are tried. There are at
  // most kMostEngines, with at most kMostOfOne settings of one engine. If cuDNN does not support
  // the graph, the result is empty, or NotImplementedError is thrown.
  static constexpr size_t kMostEngines = 10;
  static constexpr size_t kMostOfOne = 4;
  std::vector<GraphPart> engines(const GraphTarget& target, DType dtype);

 private:
  GraphPart& described(const Shape& nchw, cudnnDataType_t dtype, cudnnTensorFormat_t format,
                       int64_t id);

  std::deque<GraphPart> parts_;  // in an order in which those that are named come first
  std::vector<GraphPart*> operations_;
  int64_t tensors_ = 0;
  int64_t intermediates_ = 0;
};

// A graph by one engine, ready to run. Engines that are compiled at run time need the device's
// driver for that. To be used by one thread at a time.
class GraphPlan {
 public:
  GraphPlan(const GraphTarget& target, std::shared_ptr<const OperationGraph> graph,
            GraphPart engine);

  size_t workspace_bytes() const;
  // Queues it on the handle's stream; `addresses` of the graph's tensors, in order. Whether cuDNN
  // has run it.
  bool run(const char* operation, cudnnHandle_t handle, std::span<void* const> addresses,
           void* workspace) const;

 private:
  std::shared_ptr<const OperationGraph> graph_;
  GraphPart engine_;
  GraphPart plan_;
};

}  // namespace ringgrad::cuda
