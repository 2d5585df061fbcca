// CUDA streams as core's Stream values.
#pragma once

#include <cuda_runtime.h>

#include "ringgrad/core/device.h"

namespace ringgrad::cuda {

inline cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

// A stream of a device's own, lent from a pool and given back at the end. Streams are never destroyed, because the
// caching allocator remembers them. Independent of the legacy default stream. Movable; thread-safe to create.
class OwnedStream {
 public:
  explicit OwnedStream(Device device);  // throws DeviceError, CudaError
  ~OwnedStream();
  OwnedStream(OwnedStream&& other) noexcept : stream_(other.stream_) { other.stream_.handle = nullptr; }
  OwnedStream& operator=(OwnedStream&&) = delete;

  Stream get() const { return stream_; }

 private:
  Stream stream_;
};

}  // namespace ringgrad::cuda
