// CUDA graphs behind core/device/device_backend.h.
#pragma once

#include <array>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"

namespace ringgrad::cuda {

// Streams whose cached blocks stay allocated. While an object of this class lives, the caching
// allocator does not free the blocks of its streams, because their addresses are in use. Movable;
// thread-safe.
class KeptStreams {
 public:
  KeptStreams() = default;
  ~KeptStreams();
  KeptStreams(KeptStreams&& other) noexcept : handles_(std::exchange(other.handles_, {})) {}
  KeptStreams& operator=(KeptStreams&&) = delete;

  void add(Stream stream);

 private:
  std::vector<void*> handles_;
};
bool is_kept(Stream stream);

// The replays of a graph that may be under way. A replay with collectives gives NCCL's own threads
// work. Those leave when a rank has died, and NCCL's functions on the stream wait for them in vain
// once 2048 operations are queued (proxy.cc of 2.28, ncclLocalOpAppend). Then no abort helps. The
// host gains nothing by being further ahead than this.
inline constexpr int kMostReplays = 64;

// A recorded sequence, ready to run. Movable. Memory that the recorded body took from the allocator
// stays reserved while the graph lives.
class Graph final : public DeviceGraph {
 public:
  Graph(Graph&& other) noexcept;
  ~Graph() override;
  Graph& operator=(Graph&&) = delete;

  // Waits first if kMostReplays have not ended.
  void launch(Stream stream) const override;
  size_t nodes() const { return nodes_; }  // kernels, copies and other operations of one replay
  Device device() const { return stream_.get().device; }

 private:
  friend Graph capture(Device, const std::function<void()>&);
  Graph(OwnedStream stream, cudaGraph_t recorded, KeptStreams kept, std::vector<ReplayHook> hooks);
  void pass_on(Replay& replay, size_t hook) const;
  Event& end_of_replay() const;

  OwnedStream stream_;  // recorded on it: its blocks are the graph's memory
  KeptStreams kept_;    // that stream, and others for which the body took memory
  std::vector<ReplayHook> hooks_;
  // After the last replay of every second kMostReplays / 2, and so after all before it.
  mutable std::array<Event, 2> ends_;
  mutable int64_t replays_ = 0;
  cudaGraphExec_t executable_ = nullptr;
  size_t nodes_ = 0;
};

// Records what `body` queues on the current stream of `device`, without running it. Meanwhile the
// current stream is a private one, so that only this graph reuses memory which body takes and
// frees. Throws what body throws. Throws CudaError if body does what cannot be recorded: it waits
// for the device (item(), copies to the host), or uses another stream without waiting for it in the
// end.
Graph capture(Device device, const std::function<void()>& body);

// Returns true if this thread is inside capture().
bool capturing();
// Returns true if a capture, by any thread, has reached this stream.
bool being_captured(Stream stream);
// See DeviceBackend. REQUIRES: capturing().
void on_replay(ReplayHook hook, bool outermost);
void keep_memory(Stream stream);

// Locked while a capture begins. While a thread holds it, a stream that is not being captured stays
// so.
std::mutex& capture_begins();
// Returns true if some thread captures on that device. REQUIRES: capture_begins() is held, because
// otherwise the answer may change at once.
bool capture_on(Device device);

}  // namespace ringgrad::cuda
