#include "ringgrad/cuda_kernels/vendor/cudnn_graph.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels/float32_precision.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_call.h"

namespace ringgrad::cuda {

// ---- parts --------------------------------------------------------------------------------------

void GraphPart::check(cudnnStatus_t status, const char* what) {
  char reason[256] = "";
  if (status != CUDNN_STATUS_SUCCESS) cudnnGetLastErrorString(reason, sizeof reason);
  if (!done(status, "cudnn graph", what))
    throw NotImplementedError(str("cudnn graph: cannot ", what, ": ", reason));
}

GraphPart& GraphPart::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          size_t count, const void* values) {
  check(cudnnBackendSetAttribute(part_, name, type, static_cast<int64_t>(count), values),
        "set an attribute");
  return *this;
}

GraphPart& GraphPart::set(cudnnBackendAttributeName_t name,
                          const std::vector<const GraphPart*>& parts) {
  std::vector<cudnnBackendDescriptor_t> all;
  for (const GraphPart* part : parts) all.push_back(part->part_);
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, all.size(), all.data());
}

GraphPart& GraphPart::finish() {
  check(cudnnBackendFinalize(part_), "finish a descriptor");
  return *this;
}

size_t GraphPart::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      size_t most, void* values) const {
  int64_t count = 0;
  check(cudnnBackendGetAttribute(part_, name, type, static_cast<int64_t>(most), &count, values),
        "get an attribute");
  return std::min(most, static_cast<size_t>(count));
}

std::vector<GraphPart> GraphPart::parts(cudnnBackendAttributeName_t name,
                                        cudnnBackendDescriptorType_t type, size_t most) const {
  std::vector<GraphPart> all;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (size_t i = 0; i < most; ++i) raw.push_back(all.emplace_back(type).native());
  const size_t count = get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, raw.data());
  while (all.size() > count) all.pop_back();
  return all;
}

GraphPart described_device(const std::string& json) {
  GraphPart device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::span<const char>(json)).finish();
  return device;
}

// ---- graphs -------------------------------------------------------------------------------------

namespace {
// These numbers follow those of the tensors in memory, so that no two are equal.
constexpr int64_t kFirstIntermediate = 1000;
}  // namespace

GraphPart& OperationGraph::described(const Shape& nchw, cudnnDataType_t dtype,
                                     cudnnTensorFormat_t format, int64_t id) {
  const Strides strides =
      format == CUDNN_TENSOR_NHWC ? channels_last_strides(nchw) : contiguous_strides(nchw);
  return part(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, dtype)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kGraphAlignment)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const int64_t>(nchw))
      .set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const int64_t>(strides));
}

const GraphPart& OperationGraph::tensor(const Shape& nchw, cudnnDataType_t dtype,
                                        cudnnTensorFormat_t format) {
  return described(nchw, dtype, format, tensors_++).finish();
}

const GraphPart& OperationGraph::number() {
  GraphPart& number = described({1, 1, 1, 1}, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, tensors_++);
  return number.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true).finish();
}

const GraphPart& OperationGraph::intermediate(const Shape& nchw, cudnnDataType_t dtype,
                                              cudnnTensorFormat_t format) {
  return described(nchw, dtype, format, kFirstIntermediate + intermediates_++)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true)
      .finish();
}

GraphPart& OperationGraph::operation(cudnnBackendDescriptorType_t type) {
  return *operations_.emplace_back(&part(type));
}

void OperationGraph::pointwise(cudnnPointwiseMode_t mode, const GraphPart& x, const GraphPart* b,
                               const GraphPart& y) {
  GraphPart& function = part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
                            .set(CUDNN_ATTR_POINTWISE_MODE, mode)
                            .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  // core/kernels.h requires this; cuDNN does not document its default.
  if (mode == CUDNN_POINTWISE_RELU_FWD)
    function.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN);
  function.finish();
  GraphPart& node = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
                        .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function)
                        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
                        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  if (b) node.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  node.finish();
}

namespace {

GraphPart engine_of(const GraphPart& settings) {
  return std::move(
      settings.parts(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1).at(0));
}

bool keeps_promises(const GraphPart& engine, DType dtype) {
  const bool wide = dtype == DType::Float32 || dtype == DType::Float64;
  const auto notes = engine.get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                             CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  return std::none_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: return true;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: return dtype == DType::Float32 && !allows_tf32();
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_FFT: return !wide;  // transformed images have 16 bits as well
      default: return false;
    }
  });
}

}  // namespace

std::vector<GraphPart> OperationGraph::engines(const GraphTarget& target, DType dtype) {
  std::vector<GraphPart> chosen;
  GraphPart& graph = part(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS,
            std::vector<const GraphPart*>(operations_.begin(), operations_.end()));
  if (target.handle) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target.handle);
  graph.finish();
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    GraphPart heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    if (target.described) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.described);
    heuristics.finish();
    constexpr size_t kListed = 64;  // more than cuDNN has ever named
    std::map<int64_t, size_t> settings_of;
    for (GraphPart& settings : heuristics.parts(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kListed)) {
      const GraphPart engine = engine_of(settings);
      if (!keeps_promises(engine, dtype)) continue;
      if (settings_of[engine.number(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)]++ >= kMostOfOne) continue;
      if (chosen.size() < kMostEngines) chosen.push_back(std::move(settings));
    }
    if (!chosen.empty()) break;
  }
  return chosen;
}

// ---- plans --------------------------------------------------------------------------------------

GraphPlan::GraphPlan(const GraphTarget& target, std::shared_ptr<const OperationGraph> graph,
                     GraphPart engine)
    : graph_(std::move(graph)),
      engine_(std::move(engine)),
      plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine_);
  if (target.described)
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.described);
  else
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
  plan_.finish();
}

size_t GraphPlan::workspace_bytes() const {
  return static_cast<size_t>(plan_.number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
}

bool GraphPlan::run(const char* operation, cudnnHandle_t handle, std::span<void* const> addresses,
                    void* workspace) const {
  ASSERT(static_cast<int64_t>(addresses.size()) == graph_->tensors());
  std::vector<int64_t> ids(addresses.size());
  std::iota(ids.begin(), ids.end(), 0);
  GraphPart memory(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  memory.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(ids))
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(addresses))
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
      .finish();
  return done(cudnnBackendExecute(handle, plan_.native(), memory.native()), operation,
              "cudnnBackendExecute");
}

}  // namespace ringgrad::cuda
