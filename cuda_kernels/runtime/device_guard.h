// The CUDA runtime's current device, which belongs to the calling thread.
#pragma once

#include "ringgrad/core/device.h"

namespace ringgrad::cuda {

// Makes a CUDA device the current one for the guard's lifetime, a thread's first one for good. Throws CudaError.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;

 private:
  int previous_;
  int entered_;
};

// How many streaming multiprocessors a device has. Thread-safe.
int multiprocessors(Device device);

}  // namespace ringgrad::cuda
