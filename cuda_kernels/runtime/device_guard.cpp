#include "cuda_kernels/runtime/device_guard.h"

#include <array>
#include <atomic>

#include "core/check.h"
#include "cuda_kernels/runtime/check.h"

namespace ringgrad::cuda {

DeviceGuard::DeviceGuard(Device device) : previous_(0), entered_(device.index) {
  ASSERT(device.is_cuda());
  CUDA_CHECK(cudaGetDevice(&previous_));
  if (previous_ != entered_) CUDA_CHECK(cudaSetDevice(entered_));
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
