// The CUDA runtime as the rest of this project uses it: checked calls, the current device, streams,
// events.
#pragma once

#include <cuda_runtime.h>

#include "ringgrad/core/device.h"

// Throws unless a call of the CUDA runtime succeeds: OutOfMemoryError or CudaError, `operation:
// call failed: why (cudaErrorName)`. For .cu, .cuh and .cpp files of cuda_kernels.
#define CUDA_CHECK(call) ::ringgrad::cuda::check(call, #call)

namespace ringgrad::cuda {

void check(cudaError_t error, const char* call);

// ---- devices ------------------------------------------------------------------------------------

// Makes a CUDA device the calling thread's current one for the guard's lifetime, a thread's first
// one for good. Throws CudaError.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;

 private:
  int previous_;
  int entered_;
};

// Some calls are refused inside a capture as possibly unsafe, because a replay would leave them
// out. Ours are safe: no recorded node names yet what cudaMalloc returns, and what is waited for is
// no part of the capture.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// How many streaming multiprocessors a device has. Thread-safe.
int multiprocessors(Device device);

// ---- streams ------------------------------------------------------------------------------------

inline cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

// A stream of a device's own, lent from a pool and given back at the end. Streams are never
// destroyed, because the caching allocator remembers them. Independent of the legacy default
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

// Where the blocks of a launch on this stream can count how many of them have come to an end:
// kCounters zeros in the device's memory, which the kernel leaves as zeros (common/last_block.cuh).
// A stream's kernels follow each other, so it has them once; a graph's stream is its own for as
// long as it lives. REQUIRES: an OwnedStream's.
inline constexpr int kCounters = 1024;
unsigned* block_counters(Stream stream);

// What is queued on `waiting` from now on runs after what is queued on `producer` by now. Nothing
// for equal streams.
void wait_for(Stream waiting, Stream producer);

// ---- events: the only way in which streams wait for each other ----------------------------------

// Movable, not copyable. Throws CudaError. With `timed`, elapsed times can be read; without,
// recording is cheaper.
class Event {
 public:
  explicit Event(Device device, bool timed = false);
  ~Event();
  Event(Event&& other) noexcept : event_(other.event_), device_(other.device_) {
    other.event_ = nullptr;
  }
  Event& operator=(Event&&) = delete;

  // A mark after everything queued on `stream`, which is on the event's device.
  void record(Stream stream);
  // All that is queued on `stream` from now on waits for the mark; the host does not.
  void block(Stream stream) const;
  // The host waits for the mark.
  void synchronize() const;
  // True once the mark has been passed.
  bool done() const;
  // Milliseconds between two marks that have been passed. REQUIRES: both timed.
  float milliseconds_since(const Event& start) const;

 private:
  cudaEvent_t event_;
  Device device_;
};

}  // namespace ringgrad::cuda
