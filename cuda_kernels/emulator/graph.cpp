// Emulated stream capture and graphs. Operations that a capture forbids are refused as on a device.
// So "this step can be captured" is tested without a device.
#include <algorithm>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/runtime.h"

namespace ringgrad::emulator {

constinit thread_local std::weak_ptr<const std::vector<Node>> newest_graph;

namespace {

constinit thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

cudaError_t refuse(Capture& capture, const char* call) {
  capture.invalid = true;
  return fail(cudaErrorStreamCaptureUnsupported,
              std::string(call) + " while a stream is being captured");
}

// Returns true if every node precedes the end of the stream on which the capture began.
bool all_joined(const Capture& capture) {
  std::vector<bool> reached(capture.nodes.size());
  std::vector<int> open = capture.origin->frontier;
  while (!open.empty()) {
    const auto node = static_cast<size_t>(open.back());
    open.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    open.insert(open.end(), capture.nodes[node].after.begin(), capture.nodes[node].after.end());
  }
  return std::find(reached.begin(), reached.end(), false) == reached.end();
}

// Runs a graph's nodes, each after those on which it depends: in the order of capture, or in a
// random one.
void replay(const std::vector<Node>& nodes) {
  if (must_not_wait()) throw NotReady();  // a node in the middle might have to wait
  if (config().streams != StreamOrder::Random) {
    for (const Node& node : nodes) node.operation();
    return;
  }
  std::minstd_rand random(config().streams_seed);
  std::vector<bool> done(nodes.size());
  std::vector<size_t> left(nodes.size());
  for (size_t i = 0; i < left.size(); ++i) left[i] = i;
  while (!left.empty()) {
    const size_t start = random() % left.size();
    for (size_t k = 0; k < left.size(); ++k) {
      const auto candidate = left.begin() + static_cast<std::ptrdiff_t>((start + k) % left.size());
      const Node& node = nodes[*candidate];
      if (!std::all_of(node.after.begin(), node.after.end(),
                       [&](int i) { return done[static_cast<size_t>(i)]; }))
        continue;
      node.operation();
      done[*candidate] = true;
      left.erase(candidate);
      break;
    }
  }
}

}  // namespace

cudaError_t forbid_while_capturing(const char* call) {
  if (const cudaError_t error = refuse_if_lost()) return error;
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  auto& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  for (const auto& capture : runtime.captures) {
    const bool concerns_us = capture->mode == cudaStreamCaptureModeGlobal ||
                             (capture->mode == cudaStreamCaptureModeThreadLocal &&
                              capture->thread == std::this_thread::get_id());
    if (concerns_us) return refuse(*capture, call);
  }
  return cudaSuccess;
}

cudaError_t forbid_while_capturing(const char* call, const CUstream_st& stream) {
  {
    std::lock_guard lock(Runtime::instance().mutex);
    if (stream.capture) return refuse(*stream.capture, call);
  }
  return forbid_while_capturing(call);
}

cudaError_t forbid_while_capturing(const char* call, int device) {
  {
    auto& runtime = Runtime::instance();
    std::lock_guard lock(runtime.mutex);
    for (const auto& capture : runtime.captures)
      for (const CUstream_st* stream : capture->streams)
        if (stream->device == device) return refuse(*capture, call);
  }
  return forbid_while_capturing(call);
}

}  // namespace ringgrad::emulator

using namespace ringgrad::emulator;

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(thread_mode, *mode);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  if (const cudaError_t error = refuse_if_lost()) return error;
  auto& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  const auto stream = runtime.stream("cudaStreamIsCapturing", handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  *status = stream->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  if (const cudaError_t error = refuse_if_lost()) return error;
  auto& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  if (!handle) return fail(cudaErrorStreamCaptureUnsupported, "the null stream cannot be captured");
  const auto stream = runtime.stream("cudaStreamBeginCapture", handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture) return refuse(*stream->capture, "cudaStreamBeginCapture");
  stream->capture =
      std::make_shared<Capture>(Capture{handle, mode, std::this_thread::get_id(), {handle}, {}});
  stream->frontier.clear();
  runtime.captures.push_back(stream->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  std::vector<Node> nodes;  // destroys the nodes of a failed capture after the lock is released
  auto& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  const auto stream = runtime.stream("cudaStreamEndCapture", handle);
  if (!stream || !stream->capture)
    return fail(cudaErrorInvalidValue, "cudaStreamEndCapture without a capture");
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != handle) {
    capture->invalid = true;
    return fail(cudaErrorStreamCaptureUnmatched);
  }
  const bool joined = all_joined(*capture);
  std::erase(runtime.captures, capture);
  capture->ended = true;
  nodes = std::move(capture->nodes);
  for (CUstream_st* member : capture->streams) {
    member->capture = nullptr;
    member->frontier.clear();
  }
  if (const cudaError_t error = refuse_if_lost()) return error;
  if (capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
  if (!joined) return fail(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{std::move(nodes)};
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void* nodes, size_t* count) {
  if (nodes) return fail(cudaErrorInvalidValue, "the emulator only counts the nodes of a graph");
  *count = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  if (const cudaError_t error = refuse_if_lost()) return error;
  *executable = new CUgraphExec_st{std::make_shared<const std::vector<Node>>(graph->nodes)};
  newest_graph = (*executable)->nodes;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  auto& runtime = Runtime::instance();
  const auto stream = runtime.find_stream("cudaGraphLaunch", handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  return runtime.submit(stream, [nodes = executable->nodes] { replay(*nodes); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return refuse_if_lost();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return refuse_if_lost();
}
