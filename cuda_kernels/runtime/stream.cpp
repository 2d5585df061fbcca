#include "ringgrad/cuda_kernels/runtime/stream.h"

#include <map>
#include <mutex>
#include <vector>

#include "ringgrad/cuda_kernels/runtime/check.h"
#include "ringgrad/cuda_kernels/runtime/device_guard.h"

namespace ringgrad::cuda {
namespace {

struct Pool {
  std::mutex mutex;
  std::map<int, std::vector<Stream>> idle;  // by device
};
Pool& pool() {
  static auto* pool = new Pool;  // never destroyed: streams may be given back by static objects
  return *pool;
}

}  // namespace

OwnedStream::OwnedStream(Device device) {
  check_device("stream", device);
  std::lock_guard lock(pool().mutex);
  auto& idle = pool().idle[device.index];
  if (idle.empty()) {
    const DeviceGuard guard(device);
    cudaStream_t created;
    CUDA_CHECK(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking));
    idle.push_back({device, created});
  }
  stream_ = idle.back();
  idle.pop_back();
}

OwnedStream::~OwnedStream() {
  if (!stream_.handle) return;
  std::lock_guard lock(pool().mutex);
  pool().idle[stream_.device.index].push_back(stream_);
}

}  // namespace ringgrad::cuda
