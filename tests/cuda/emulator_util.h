// Helpers of the emulator's own tests: device memory, and launches on the first device.
#pragma once

#include <vector>

#include "ringgrad/cuda_kernels/launch.h"
#include "ringgrad/tests/cuda/cuda_util.h"

namespace ringgrad::test {

// Device memory of n values of T, for one test.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t n) : n_(n) { CUDA_CHECK(cudaMalloc(&data_, n * sizeof(T))); }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    CUDA_CHECK(cudaMemcpy(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaDeviceSynchronize());
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  T* get() const { return static_cast<T*>(data_); }
  std::vector<T> values() const {
    std::vector<T> result(n_);
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaMemcpy(result.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost));
    return result;
  }

 private:
  void* data_ = nullptr;
  size_t n_;
};

template <class... Params, class... Args>
void run(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, Args... args) {
  cuda::launch(kernel, grid, block, shared_bytes, current_stream(Device(DeviceType::CUDA)),
               args...);
}

}  // namespace ringgrad::test
