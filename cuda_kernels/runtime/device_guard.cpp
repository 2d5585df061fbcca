#include "ringgrad/cuda_kernels/runtime/device_guard.h"

#include <array>
#include <atomic>
#include <utility>

#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/runtime/check.h"

namespace ringgrad::cuda {

// A thread begins on device 0, which nobody has chosen: cudaSetDevice(0) to go back there would make a context on it,
// hundreds of megabytes for each rank (CUDA 12.0). So the first device that a thread enters stays current.
DeviceGuard::DeviceGuard(Device device) : previous_(0), entered_(device.index) {
  constinit static thread_local bool first = true;
  ASSERT(device.is_cuda());
  CUDA_CHECK(cudaGetDevice(&previous_));
  if (previous_ != entered_) CUDA_CHECK(cudaSetDevice(entered_));
  if (std::exchange(first, false) && previous_ == 0) previous_ = entered_;
}

DeviceGuard::~DeviceGuard() {
  if (previous_ != entered_) cudaSetDevice(previous_);  // it was current before, so this cannot fail
}

int multiprocessors(Device device) {
  static std::array<std::atomic<int>, 64> known{};
  std::atomic<int>& count = known[static_cast<size_t>(device.index)];
  if (count == 0) {
    cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, device.index));
    count = properties.multiProcessorCount;
  }
  return count;
}

}  // namespace ringgrad::cuda
