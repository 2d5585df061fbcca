// CUDA graphs behind core/device/device_backend.h.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include <cuda_runtime.h>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"

namespace ringgrad::cuda {

// A recorded sequence, ready to run. Movable. Memory that the recorded body took from the allocator stays reserved for
// as long as the graph lives.
class Graph final : public DeviceGraph {
 public:
  Graph(Graph&& other) noexcept;
  ~Graph() override;
  Graph& operator=(Graph&&) = delete;

  void launch(Stream stream) const override;
  size_t nodes() const { return nodes_; }  // kernels, copies and so on that one replay runs
  Device device() const { return stream_.get().device; }

 private:
  friend Graph capture(Device, const std::function<void()>&);
  Graph(OwnedStream stream, cudaGraph_t recorded, std::vector<ReplayHook> hooks);
  void pass_on(Replay& replay, size_t hook) const;

  OwnedStream stream_;  // its blocks in the caching allocator are the graph's memory
  std::vector<ReplayHook> hooks_;
  mutable Event launched_;  // behind the last replay, and so behind all of them
  cudaGraphExec_t executable_ = nullptr;
  size_t nodes_ = 0;
};

// Records what `body` queues on the current stream of `device`, running nothing. Meanwhile the current stream is a
// private one, so that memory which body takes and frees is used again by this graph alone. Throws what body throws,
// and CudaError when body does what cannot be recorded: waits for the device (item(), copies to the host), or uses
// another stream without waiting for it in the end.
Graph capture(Device device, const std::function<void()>& body);

// Whether this thread is inside capture().
bool capturing();
// Whether a capture, of whatever thread, has reached this stream.
bool being_captured(Stream stream);
// See DeviceBackend. REQUIRES: capturing().
void on_replay(ReplayHook hook);

// Held while a capture begins: whoever holds it knows that a stream which is not being captured stays so.
std::mutex& capture_begins();

// For the graphs' own use, in backend.cpp, where memory is. While a graph is alive its nodes name addresses, so no
// memory of its device goes back to the system: what the caching allocator gives back waits for the last
// release_memory. Thread-safe.
void keep_memory(Device device);
void release_memory(Device device);

}  // namespace ringgrad::cuda
