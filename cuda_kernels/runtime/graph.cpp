#include "ringgrad/cuda_kernels/runtime/graph.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <utility>

#include "ringgrad/core/base/check.h"

namespace ringgrad::cuda {
namespace {

class Recording;
constinit thread_local Recording* recording = nullptr;
constinit std::array<std::atomic<int>, kMaxDevices> captures{};  // in progress

// Counts, for each stream handle, the KeptStreams that name it.
struct Kept {
  std::mutex mutex;
  std::map<void*, int> times;
};
Kept& all_kept() {
  static auto* const kept = new Kept;  // never destroyed: graphs may be static objects
  return *kept;
}

// Ends the capture in every case, so that an exception does not leave the stream recording.
class Recording {
 public:
  explicit Recording(Stream stream) : stream_(stream) {
    const std::lock_guard lock(capture_begins());
    CUDA_CHECK(cudaStreamBeginCapture(native(stream_), cudaStreamCaptureModeThreadLocal));
    ++captures[stream_.device.index];
    kept.add(stream_);
    recording = this;
  }
  ~Recording() {
    if (open_) {
      recording = outer_;
      cudaStreamEndCapture(native(stream_), &graph_);
    }
    if (graph_) cudaGraphDestroy(graph_);
    // Clears the error of a failed end, so that it is not mistaken for a later call's.
    cudaGetLastError();
    --captures[stream_.device.index];
  }
  Recording(const Recording&) = delete;

  cudaGraph_t finish() {
    open_ = false;
    recording = outer_;
    CUDA_CHECK(cudaStreamEndCapture(native(stream_), &graph_));
    return graph_;
  }

  KeptStreams kept;
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

void on_replay(ReplayHook hook, bool outermost) {
  ASSERT(recording);
  std::vector<ReplayHook>& hooks = recording->hooks;
  hooks.insert(outermost ? hooks.begin() : hooks.end(), std::move(hook));
}

void keep_memory(Stream stream) {
  ASSERT(recording);
  recording->kept.add(stream);
}

std::mutex& capture_begins() {
  constinit static std::mutex mutex;
  return mutex;
}

bool capture_on(Device device) { return captures[device.index] > 0; }

KeptStreams::~KeptStreams() {
  const std::lock_guard lock(all_kept().mutex);
  for (void* handle : handles_)
    if (--all_kept().times[handle] == 0) all_kept().times.erase(handle);
}

void KeptStreams::add(Stream stream) {
  if (std::find(handles_.begin(), handles_.end(), stream.handle) != handles_.end()) return;
  handles_.push_back(stream.handle);
  const std::lock_guard lock(all_kept().mutex);
  ++all_kept().times[stream.handle];
}

bool is_kept(Stream stream) {
  const std::lock_guard lock(all_kept().mutex);
  return all_kept().times.contains(stream.handle);
}

Graph::Graph(OwnedStream stream, cudaGraph_t recorded, KeptStreams kept,
             std::vector<ReplayHook> hooks)
    : stream_(std::move(stream)),
      kept_(std::move(kept)),
      hooks_(std::move(hooks)),
      ends_{Event(device()), Event(device())} {
  CUDA_CHECK(cudaGraphGetNodes(recorded, nullptr, &nodes_));
  CUDA_CHECK(cudaGraphInstantiate(&executable_, recorded, 0));
}
Graph::Graph(Graph&& other) noexcept
    : stream_(std::move(other.stream_)),
      kept_(std::move(other.kept_)),
      hooks_(std::move(other.hooks_)),
      ends_(std::move(other.ends_)),
      replays_(other.replays_),
      executable_(std::exchange(other.executable_, nullptr)),
      nodes_(other.nodes_) {}
Graph::~Graph() {
  if (!executable_) return;
  try {
    const DeviceGuard guard(device());
    const RelaxedCapture relaxed;
    // A replay may still be running. Waiting for the whole device would invalidate captures of
    // other threads.
    for (const Event& end : ends_) end.synchronize();
    cudaGraphExecDestroy(executable_);
  } catch (const std::exception&) {  // the device is lost, and the graph with it
  }
}

// Returns the event by which the next replay marks its end.
Event& Graph::end_of_replay() const {
  return ends_[static_cast<size_t>(replays_ / (kMostReplays / 2) % 2)];
}

void Graph::launch(Stream stream) const {
  const DeviceGuard guard(stream.device);
  if (replays_ % (kMostReplays / 2) == 0) end_of_replay().synchronize();
  Replay replay{stream};
  pass_on(replay, 0);
}

void Graph::pass_on(Replay& replay, size_t hook) const {
  if (hook < hooks_.size()) return hooks_[hook](replay, [&, hook] { pass_on(replay, hook + 1); });
  CUDA_CHECK(cudaGraphLaunch(executable_, native(replay.stream)));
  end_of_replay().record(replay.stream);
  ++replays_;
}

// Captures on a separate stream. Work that other threads queue meanwhile on the default stream must
// not be recorded, and recorded work must not wait for it. Thread-local mode lets those threads
// allocate and wait, too.
Graph capture(Device device, const std::function<void()>& body) {
  const DeviceGuard device_guard(device);
  OwnedStream own(device);
  Recording here(own.get());
  {
    const StreamGuard guard(own.get());
    body();
  }
  const cudaGraph_t recorded = here.finish();
  return Graph(std::move(own), recorded, std::move(here.kept), std::move(here.hooks));
}

}  // namespace ringgrad::cuda
