// A stream is the ordered queue on which a device executes kernels, and every kernel receives the one it must use.
// On CUDA the handle is a cudaStream_t; on the CPU it is the logical device's ThreadPool and work runs at once.
#pragma once

#include "ringgrad/core/device.h"

namespace ringgrad {

struct Stream {
  Device device;
  void* handle = nullptr;
  bool operator==(const Stream&) const = default;
};

// The stream on which this thread's operations on `device` run: the device's default stream, or the innermost
// StreamGuard's. Throws DeviceError when the device does not exist.
Stream current_stream(Device device);

// Blocks until everything queued on the stream is done. item<T>() and copies to the host are built on it.
void synchronize(Stream stream);

// Makes `stream` the current one of its device for this thread, for the guard's lifetime.
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;

 private:
  Stream previous_;
};

}  // namespace ringgrad
