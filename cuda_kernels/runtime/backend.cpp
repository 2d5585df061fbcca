// CUDA's implementation of core's device interface: the number of devices, memory, a default stream
// for each, and waiting.
#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/runtime/graph.h"

namespace ringgrad::cuda {
namespace {

struct DeviceRecord {
  std::once_flag once;
  std::optional<OwnedStream> default_stream;
};

// Lets a device reach another one's memory. Without that, copies between them pass through the
// host's.
void connect(int index, int peer) {
  int possible = 0;
  CUDA_CHECK(cudaDeviceCanAccessPeer(&possible, index, peer));
  if (!possible) return;
  const DeviceGuard guard(Device(DeviceType::CUDA, index));
  const RelaxedCapture relaxed;
  // NCCL may have done it already, and a device has a largest number of peers.
  if (cudaDeviceEnablePeerAccess(peer, 0) != cudaSuccess) cudaGetLastError();
}

class EventTimer final : public DeviceTimer {
 public:
  explicit EventTimer(Stream stream)
      : stream_(stream), begin_(stream.device, true), end_(stream.device, true) {
    begin_.record(stream_);
  }
  void stop() override { end_.record(stream_); }
  double milliseconds() override {
    end_.synchronize();
    return end_.milliseconds_since(begin_);
  }

 private:
  Stream stream_;
  Event begin_;
  Event end_;
};

class CudaBackend : public DeviceBackend {
 public:
  int count() const override { return found().devices; }
  std::string why_none() const override { return cudaGetErrorString(found().error); }

  std::string describe(int index) const override {
    cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    return properties.name;
  }

  void* allocate(int index, size_t bytes) override {
    const DeviceGuard guard(Device(DeviceType::CUDA, index));
    const RelaxedCapture relaxed;
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
      // Inside a capture it is not possible to wait, so cached blocks cannot be freed for another
      // attempt.
      if (cuda::capturing()) CUDA_CHECK(error);
      cudaGetLastError();
      return nullptr;
    }
    CUDA_CHECK(error);
    return memory;
  }

  // cudaFree waits for the whole device, which would invalidate a capture on it.
  bool deallocate(int index, void* memory, size_t) override {
    const Device device(DeviceType::CUDA, index);
    const std::lock_guard no_capture_begins(capture_begins());
    if (capture_on(device)) return false;
    const DeviceGuard guard(device);
    CUDA_CHECK(cudaFree(memory));
    return true;
  }

  size_t free_memory(int index) const override {
    const DeviceGuard guard(Device(DeviceType::CUDA, index));
    size_t available = 0;
    size_t total = 0;
    CUDA_CHECK(cudaMemGetInfo(&available, &total));
    return available;
  }

  Stream default_stream(int index) override {
    check_device("stream", Device(DeviceType::CUDA, index));
    DeviceRecord& device = record(index);
    std::call_once(device.once, [&] {
      device.default_stream.emplace(Device(DeviceType::CUDA, index));
      const std::lock_guard lock(used_mutex_);
      for (const int other : used_) {
        connect(index, other);
        connect(other, index);
      }
      used_.push_back(index);
    });
    return device.default_stream->get();
  }

  void synchronize(Stream stream) override { wait_on_host(stream); }

  bool settle(Stream stream) override {
    const std::lock_guard no_capture_begins(capture_begins());
    const DeviceGuard guard(stream.device);
    if (being_captured(stream) || is_kept(stream)) return false;
    const RelaxedCapture relaxed;
    wait_on_host(stream);
    return true;
  }

  std::unique_ptr<DeviceTimer> start_timer(Stream stream) override {
    return std::make_unique<EventTimer>(stream);
  }

  std::unique_ptr<DeviceGraph> capture(int index, const std::function<void()>& body) override {
    return std::make_unique<Graph>(cuda::capture(Device(DeviceType::CUDA, index), body));
  }
  bool capturing() const override { return cuda::capturing(); }
  void on_replay(ReplayHook hook, bool outermost) override {
    cuda::on_replay(std::move(hook), outermost);
  }
  void keep_memory(Stream stream) override { cuda::keep_memory(stream); }

 private:
  // The driver is asked once. It returns an error if there is no driver or device, or if the driver
  // is old or a device broken. count() returns 0 then.
  struct Found {
    int devices = 0;
    cudaError_t error = cudaSuccess;
  };
  static const Found& found() {
    static const Found all = [] {
      Found found;
      found.error = cudaGetDeviceCount(&found.devices);
      if (found.error != cudaSuccess) found.devices = 0;
      cudaGetLastError();
      return found;
    }();
    return all;
  }

  DeviceRecord& record(int index) {
    std::call_once(once_, [this] {
      records_ = std::make_unique<DeviceRecord[]>(static_cast<size_t>(count()));
    });
    return records_[static_cast<size_t>(index)];
  }

  std::once_flag once_;
  std::unique_ptr<DeviceRecord[]> records_;
  std::mutex used_mutex_;
  std::vector<int> used_;  // the devices that this process uses
};

// The backend is never destroyed: tensors with static storage duration are freed late.
BEFORE_MAIN(cuda, register_backend(DeviceType::CUDA, new CudaBackend));

}  // namespace

}  // namespace ringgrad::cuda
