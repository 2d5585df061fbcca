// The CUDA runtime in the form that this project uses: checked calls, the current device, streams,
// events.
#pragma once

#include <cuda_runtime.h>

#include "ringgrad/core/device.h"

// Throws unless a call of the CUDA runtime succeeds: OutOfMemoryError or CudaError, `operation:
// call failed: reason (cudaErrorName)`. For .cu, .cuh and .cpp files of cuda_kernels.
#define CUDA_CHECK(call) ::ringgrad::cuda::check(call, #call)

namespace ringgrad::cuda {

void check(cudaError_t error, const char* call);

// ---- devices ------------------------------------------------------------------------------------

// Makes a CUDA device the calling thread's current one while the guard lives. A thread's first
// device stays current for good. Throws CudaError.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;

 private:
  int previous_;
  int entered_;
};

// Allows calls that a capture refuses as potentially unsafe because a replay would leave them out.
// Ours are safe: no recorded node uses the result of cudaMalloc yet, and the work waited for is not
// part of the capture.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Returns the number of a device's streaming multiprocessors. Thread-safe.
int multiprocessors(Device device);
// Returns the first number of a device's compute capability: 9 for Hopper. Thread-safe.
int compute_capability_major(Device device);

// ---- streams ------------------------------------------------------------------------------------

inline cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

// A private stream of a device, borrowed from a pool and returned at the end. Streams are never
// destroyed, because the caching allocator remembers them. It is independent of the legacy default
// stream. Movable; thread-safe to create.
class OwnedStream {
 public:
  explicit OwnedStream(Device device);  // throws DeviceError, CudaError
  ~OwnedStream();
  OwnedStream(OwnedStream&& other) noexcept : stream_(other.stream_) {
    other.stream_.handle = nullptr;
  }
  OwnedStream& operator=(OwnedStream&&) = delete;

  Stream get() const { return stream_; }

 private:
  Stream stream_;
};

// Returns counters in which the blocks of a launch on this stream count how many of them have
// finished: kCounters zeros in the device's memory, which the kernel leaves as zeros
// (common/last_block.cuh). A stream's kernels run one after another, so it needs one set. A graph's
// stream belongs to it while it lives. REQUIRES: the stream of an OwnedStream.
inline constexpr int kCounters = 1024;
unsigned* block_counters(Stream stream);

// Returns true if all that was queued on the stream is done. Throws CudaError if the stream is
// being captured.
bool has_ended(Stream stream);
// Makes the host wait for what is queued on the stream now. Like Event::synchronize(), it asks CUDA
// time and again. A call that waits may hold up other threads' calls, among them those that end
// NCCL's transfers, for which this one may be waiting.
void wait_on_host(Stream stream);

// Makes what is queued on `waiting` from now on run after what is queued on `producer` now. Does
// nothing for equal streams.
void wait_for(Stream waiting, Stream producer);

// ---- events: the only way in which streams wait for each other ----------------------------------

// Movable, not copyable. Throws CudaError. With `timed`, elapsed times can be read; without it,
// recording is cheaper.
class Event {
 public:
  explicit Event(Device device, bool timed = false);
  ~Event();
  Event(Event&& other) noexcept : event_(other.event_), device_(other.device_) {
    other.event_ = nullptr;
  }
  Event& operator=(Event&&) = delete;

  // Marks the position after everything queued on `stream`, which is on the event's device.
  void record(Stream stream);
  // Makes work queued on `stream` from now on wait for the mark; the host does not wait.
  void block(Stream stream) const;
  // Makes the host wait for the mark; see wait_on_host().
  void synchronize() const;
  // Returns true once the mark has been passed.
  bool done() const;
  // Returns the milliseconds between two marks that have been passed. REQUIRES: both are timed.
  float milliseconds_since(const Event& start) const;

 private:
  cudaEvent_t event_;
  Device device_;
};

}  // namespace ringgrad::cuda
