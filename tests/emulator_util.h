// What the emulator's tests share: device memory, launches on the first device, the order of streams, and the text of
// an error.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"
#include "cuda_kernels/emulator/config.h"
#include "cuda_kernels/launch.h"

namespace ringgrad::test {

// Device memory of n values of T, for one test.
template <class T>
class Array {
 public:
  explicit Array(size_t n) : n_(n) { CUDA_CHECK(cudaMalloc(&data_, n * sizeof(T))); }
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    CUDA_CHECK(cudaMemcpy(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
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
  cuda::launch(kernel, grid, block, shared_bytes, current_stream(Device(DeviceType::CUDA)), args...);
}

using emulator::StreamOrder;

// When the operations of streams run, as long as this lives.
class StreamOrderGuard {
 public:
  explicit StreamOrderGuard(StreamOrder order, uint32_t seed = emulator::config().streams_seed) {
    emulator::config().streams = order;
    emulator::config().streams_seed = seed;
  }
  ~StreamOrderGuard() { emulator::config() = before_; }

 private:
  const emulator::Config before_ = emulator::config();
};

// The message of the CudaError that `body` throws; "" when it throws none.
template <class Body>
std::string failure(Body body) {
  try {
    body();
  } catch (const CudaError& error) {
    return error.what();
  }
  return "";
}
inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace ringgrad::test
