// The devices that hold tensors. "cpu" is one logical device by default. RINGGRAD_CPU_DEVICES=n
// splits the machine's cores into cpu:0 … cpu:n-1, each with its own threads and its own memory
// account, so that DataParallel can be run, tested and measured without a GPU. "cuda:i" exists
// where CUDA kernels are built in.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>

namespace ringgrad {

enum class DeviceType : uint8_t { CPU, CUDA };
inline constexpr int kDeviceTypes = 2;

struct Device {
  DeviceType type = DeviceType::CPU;
  int8_t index = 0;

  Device() = default;
  // An index that does not fit becomes -1, which is the index of no device.
  Device(DeviceType type, int index = 0)
      : type(type), index(static_cast<int8_t>(index >= 0 && index <= INT8_MAX ? index : -1)) {}
  // Parses "cpu", "cpu:1", "cuda", "cuda:0". Throws DeviceError on anything else. It does not check
  // that the device exists.
  Device(std::string_view text);
  Device(const char* text) : Device(std::string_view(text)) {}

  bool is_cpu() const { return type == DeviceType::CPU; }
  bool is_cuda() const { return type == DeviceType::CUDA; }
  bool operator==(const Device&) const = default;
};

const char* name(DeviceType type);  // "cpu"
std::ostream& operator<<(std::ostream& out, Device device);

// Returns the number of devices of a type that exist now. Thread-safe.
int device_count(DeviceType type);

// Returns a message for the user that says why there is no device of a type, for example "CUDA
// driver version is insufficient for CUDA runtime version". REQUIRES: device_count(type) == 0.
std::string why_no_device(DeviceType type);

// Throws DeviceError unless `device` exists. The message names the devices that do.
void check_device(const char* operation, Device device);

// Returns the number of CPU cores that this process may use: RINGGRAD_THREADS if set, otherwise the
// size of its affinity mask.
int cpu_cores();

// A stream is the ordered queue on which a device executes kernels. Every kernel receives the
// stream that it must use. On CUDA the handle is a cudaStream_t. On the CPU it is the logical
// device's ThreadPool, and work runs at once.
struct Stream {
  Device device;
  void* handle = nullptr;
  bool operator==(const Stream&) const = default;
};

// Returns the stream on which this thread's operations on `device` run. This is the innermost
// StreamGuard's stream, or else the device's default stream. Throws DeviceError if the device does
// not exist.
Stream current_stream(Device device);

// Blocks until everything queued on the stream is done. item<T>() and copies to the host rely on
// it.
void synchronize(Stream stream);

// Makes `stream` the current stream of its device in this thread while the guard lives.
class StreamGuard {
 public:
  // REQUIRES: the stream has a handle.
  explicit StreamGuard(Stream stream) : stream_(stream), outer_(std::exchange(innermost_, this)) {}
  ~StreamGuard() { innermost_ = outer_; }
  StreamGuard(const StreamGuard&) = delete;

 private:
  friend Stream current_stream(Device device);
  static inline constinit thread_local const StreamGuard* innermost_ = nullptr;
  Stream stream_;
  const StreamGuard* outer_;
};

}  // namespace ringgrad
