// The part of cuDNN's graph API that our kernels need. Operations on tensors make a graph. cuDNN
// names the engines that could run it, the best by its own estimate first. An engine with its
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

// The device for which plans are made: a handle's device, or one that is only described. For the
// latter plans are inspected and not run.
struct GraphTarget {
  cudnnHandle_t handle = nullptr;
  const GraphPart* described = nullptr;
};
// Returns a device from its properties in cuDNN's JSON format. Neither a GPU nor its driver is
// needed.
GraphPart described_device(const std::string& json);

// The alignment of addresses, in bytes, on which cuDNN may rely.
inline constexpr int64_t kGraphAlignment = 16;

// Built from front to back: tensors, then the operations on them.
class OperationGraph {
 public:
  OperationGraph() = default;
  OperationGraph(const OperationGraph&) = delete;
  ~OperationGraph() {
    while (!parts_.empty()) parts_.pop_back();
  }

  // Adds a tensor in memory. Its address is one of those that a plan runs with, in this order.
  const GraphPart& tensor(const Shape& nchw, cudnnDataType_t dtype, cudnnTensorFormat_t format);
  // Adds a float32 that the host gives. Its address is among the others.
  const GraphPart& number();
  // Adds a tensor that one operation passes to the next and that is never in memory.
  const GraphPart& intermediate(const Shape& nchw, cudnnDataType_t dtype,
                                cudnnTensorFormat_t format);

  // Adds a part that operations refer to. The caller must finish it.
  GraphPart& part(cudnnBackendDescriptorType_t type) { return parts_.emplace_back(type); }
  // The caller must finish this, too.
  GraphPart& operation(cudnnBackendDescriptorType_t type);
  // y = mode(x[, b]), computed in float32.
  void pointwise(cudnnPointwiseMode_t mode, const GraphPart& x, const GraphPart* b,
                 const GraphPart& y);

  int64_t tensors() const { return tensors_; }  // including numbers: the number of addresses

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

  std::deque<GraphPart> parts_;  // each part comes after those to which it refers
  std::vector<GraphPart*> operations_;
  int64_t tensors_ = 0;
  int64_t intermediates_ = 0;
};

// A graph on one engine, ready to run. Engines that are compiled at run time need the device's
// driver for that. REQUIRES: one thread at a time uses it.
class GraphPlan {
 public:
  GraphPlan(const GraphTarget& target, std::shared_ptr<const OperationGraph> graph,
            GraphPart engine);

  size_t workspace_bytes() const;
  // Queues the plan on the handle's stream. `addresses` are those of the graph's tensors, in order.
  // Returns true if cuDNN has run it.
  bool run(const char* operation, cudnnHandle_t handle, std::span<void* const> addresses,
           void* workspace) const;

 private:
  std::shared_ptr<const OperationGraph> graph_;
  GraphPart engine_;
  GraphPart plan_;
};

}  // namespace ringgrad::cuda
