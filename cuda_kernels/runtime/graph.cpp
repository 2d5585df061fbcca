#include "ringgrad/cuda_kernels/runtime/graph.h"

#include <utility>

#include "ringgrad/core/base/check.h"

namespace ringgrad::cuda {
namespace {

class Recording;
constinit thread_local Recording* recording = nullptr;

// A capture that ends in every case, so that an exception does not leave the stream recording.
class Recording {
 public:
  explicit Recording(Stream stream) : stream_(stream) {
    const std::lock_guard lock(capture_begins());
    CUDA_CHECK(cudaStreamBeginCapture(native(stream_), cudaStreamCaptureModeThreadLocal));
    keep_memory(stream_.device);  // of which nodes have addresses, before there is a graph that keeps it
    recording = this;
  }
  ~Recording() {
    if (open_) {
      recording = outer_;
      cudaStreamEndCapture(native(stream_), &graph_);
    }
    if (graph_) cudaGraphDestroy(graph_);
    cudaGetLastError();  // of the end of a capture that failed: it must not be taken for a later call's
    release_memory(stream_.device);
  }
  Recording(const Recording&) = delete;

  cudaGraph_t finish() {
    open_ = false;
    recording = outer_;
    CUDA_CHECK(cudaStreamEndCapture(native(stream_), &graph_));
    return graph_;
  }

  std::vector<ReplayHook> hooks;

 private:
  Stream stream_;
  Recording* const outer_ = recording;
  cudaGraph_t graph_ = nullptr;
  bool open_ = true;
};

}  // namespace

bool capturing() { return recording != nullptr; }

bool being_captured(Stream stream) {
  const DeviceGuard guard(stream.device);
  cudaStreamCaptureStatus status;
  CUDA_CHECK(cudaStreamIsCapturing(native(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

void on_replay(ReplayHook hook) {
  ASSERT(recording);
  recording->hooks.push_back(std::move(hook));
}

std::mutex& capture_begins() {
  constinit static std::mutex mutex;
  return mutex;
}

Graph::Graph(OwnedStream stream, cudaGraph_t recorded, std::vector<ReplayHook> hooks)
    : stream_(std::move(stream)), hooks_(std::move(hooks)), launched_(device()) {
  CUDA_CHECK(cudaGraphGetNodes(recorded, nullptr, &nodes_));
  CUDA_CHECK(cudaGraphInstantiate(&executable_, recorded, 0));
  // The graph has the addresses of blocks that the allocator would give away when the step's tensors are gone.
  keep_memory(device());
}
Graph::Graph(Graph&& other) noexcept
    : stream_(std::move(other.stream_)),
      hooks_(std::move(other.hooks_)),
      launched_(std::move(other.launched_)),
      executable_(std::exchange(other.executable_, nullptr)),
      nodes_(other.nodes_) {}
Graph::~Graph() {
  if (!executable_) return;
  const DeviceGuard guard(device());
  const RelaxedCapture relaxed;
  // A replay may still be running. Waiting for the whole device instead would spoil what other threads capture there.
  try {
    launched_.synchronize();
  } catch (const std::exception&) {  // the device is lost, and runs nothing
  }
  cudaGraphExecDestroy(executable_);
  release_memory(device());
}

void Graph::launch(Stream stream) const {
  const DeviceGuard guard(stream.device);
  Replay replay{stream};
  pass_on(replay, 0);
}

void Graph::pass_on(Replay& replay, size_t hook) const {
  if (hook < hooks_.size()) return hooks_[hook](replay, [&, hook] { pass_on(replay, hook + 1); });
  CUDA_CHECK(cudaGraphLaunch(executable_, native(replay.stream)));
  launched_.record(replay.stream);
}

// On a stream of its own: what other threads queue meanwhile on the default stream must not be recorded, and what is
// recorded must not wait for it. Thread-local mode lets them allocate and wait, too.
Graph capture(Device device, const std::function<void()>& body) {
  const DeviceGuard device_guard(device);
  OwnedStream own(device);
  Recording here(own.get());
  {
    const StreamGuard guard(own.get());
    body();
  }
  const cudaGraph_t recorded = here.finish();
  return Graph(std::move(own), recorded, std::move(here.hooks));
}

}  // namespace ringgrad::cuda
