#include "ringgrad/cuda_kernels/runtime/graph.h"

#include <utility>

namespace ringgrad::cuda {
namespace {

constinit thread_local int capture_depth = 0;

// A capture that ends in every case, so that an exception does not leave the stream recording.
class Recording {
 public:
  explicit Recording(Stream stream) : stream_(stream) {
    const std::lock_guard lock(capture_begins());
    CUDA_CHECK(cudaStreamBeginCapture(native(stream_), cudaStreamCaptureModeThreadLocal));
    ++capture_depth;
  }
  ~Recording() {
    if (open_) {
      --capture_depth;
      cudaStreamEndCapture(native(stream_), &graph_);
    }
    if (graph_) cudaGraphDestroy(graph_);
    cudaGetLastError();  // of the end of a capture that failed: it must not be taken for a later call's
  }
  Recording(const Recording&) = delete;

  cudaGraph_t finish() {
    open_ = false;
    --capture_depth;
    CUDA_CHECK(cudaStreamEndCapture(native(stream_), &graph_));
    return graph_;
  }

 private:
  Stream stream_;
  cudaGraph_t graph_ = nullptr;
  bool open_ = true;
};

}  // namespace

bool capturing() { return capture_depth > 0; }

std::mutex& capture_begins() {
  constinit static std::mutex mutex;
  return mutex;
}

Graph::Graph(OwnedStream stream, cudaGraph_t recorded) : stream_(std::move(stream)) {
  CUDA_CHECK(cudaGraphGetNodes(recorded, nullptr, &nodes_));
  CUDA_CHECK(cudaGraphInstantiate(&executable_, recorded, 0));
  // The graph has the addresses of blocks that the allocator would give away when the step's tensors are gone.
  keep_memory(device());
}
Graph::Graph(Graph&& other) noexcept
    : stream_(std::move(other.stream_)), executable_(std::exchange(other.executable_, nullptr)), nodes_(other.nodes_) {}
Graph::~Graph() {
  if (!executable_) return;
  const DeviceGuard guard(device());
  cudaDeviceSynchronize();  // a replay may still be running
  cudaGraphExecDestroy(executable_);
  release_memory(device());
}

void Graph::launch(Stream stream) const {
  const DeviceGuard guard(stream.device);
  CUDA_CHECK(cudaGraphLaunch(executable_, native(stream)));
}

// On a stream of its own: what other threads queue meanwhile on the default stream must not be recorded, and what is
// recorded must not wait for it. Thread-local mode lets them allocate and wait, too.
Graph capture(Device device, const std::function<void()>& body) {
  const DeviceGuard device_guard(device);
  OwnedStream own(device);
  Recording recording(own.get());
  {
    const StreamGuard guard(own.get());
    body();
  }
  return Graph(std::move(own), recording.finish());
}

}  // namespace ringgrad::cuda
