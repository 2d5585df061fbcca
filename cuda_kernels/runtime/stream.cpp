#include "ringgrad/cuda_kernels/runtime/stream.h"

#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ringgrad/core/base/check.h"

namespace ringgrad::cuda {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) [[likely]]
    return;
  const std::string message = str(current_op(), ": ", call, " failed: ", cudaGetErrorString(error),
                                  " (", cudaGetErrorName(error), ")");
  // The error is reported here. The next call starts without it, unless the device itself is lost.
  cudaGetLastError();
  if (error == cudaErrorMemoryAllocation) throw OutOfMemoryError(message);
  throw CudaError(message);
}

// ---- devices ------------------------------------------------------------------------------------

// A thread begins on device 0 without choosing it. cudaSetDevice(0) to return there would create a
// context on it, hundreds of megabytes for each rank (CUDA 12.0). So the first device that a thread
// enters stays current.
DeviceGuard::DeviceGuard(Device device) : previous_(0), entered_(device.index) {
  constinit static thread_local bool first = true;
  ASSERT(device.is_cuda());
  CUDA_CHECK(cudaGetDevice(&previous_));
  if (previous_ != entered_) CUDA_CHECK(cudaSetDevice(entered_));
  if (std::exchange(first, false) && previous_ == 0) previous_ = entered_;
}

DeviceGuard::~DeviceGuard() {
  // The device was current before, so this cannot fail.
  if (previous_ != entered_) cudaSetDevice(previous_);
}

namespace {

// Launchers call this for each launch. Reading an attribute takes nanoseconds, while
// cudaGetDeviceProperties takes milliseconds.
int attribute(cudaDeviceAttr attribute, Device device) {
  int value = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device.index));
  return value;
}

}  // namespace

int multiprocessors(Device device) { return attribute(cudaDevAttrMultiProcessorCount, device); }
int compute_capability_major(Device device) {
  return attribute(cudaDevAttrComputeCapabilityMajor, device);
}

// ---- streams ------------------------------------------------------------------------------------

namespace {

// Returns CUDA's answer to whether something is done.
bool done(cudaError_t answer, const char* call) {
  if (answer == cudaErrorNotReady) {
    // It is remembered like an error, and libraries would take it for one of their own.
    cudaGetLastError();
    return false;
  }
  check(answer, call);
  return true;
}

struct Pool {
  std::mutex mutex;
  std::map<int, std::vector<Stream>> idle;  // per device
  std::map<void*, unsigned*> counters;      // per handle
};
Pool& pool() {
  static auto* pool = new Pool;  // never destroyed, because static objects may return streams
  return *pool;
}

}  // namespace

OwnedStream::OwnedStream(Device device) {
  check_device("stream", device);
  std::lock_guard lock(pool().mutex);
  auto& idle = pool().idle[device.index];
  if (idle.empty()) {
    const DeviceGuard guard(device);
    const RelaxedCapture relaxed;
    cudaStream_t created;
    CUDA_CHECK(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking));
    void* counters = nullptr;
    const std::vector<unsigned> zeros(kCounters);
    CUDA_CHECK(cudaMalloc(&counters, sizeof(unsigned) * kCounters));
    // cudaMemcpy is not used, because streams that do not wait for the null stream might not see
    // the zeros yet.
    CUDA_CHECK(cudaMemcpyAsync(counters, zeros.data(), sizeof(unsigned) * kCounters,
                               cudaMemcpyHostToDevice, created));
    wait_on_host({device, created});
    pool().counters[created] = static_cast<unsigned*>(counters);
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

bool has_ended(Stream stream) {
  const DeviceGuard guard(stream.device);
  return done(cudaStreamQuery(native(stream)), "cudaStreamQuery");
}

void wait_on_host(Stream stream) {
  if (has_ended(stream)) return;
  Event reached(stream.device);
  reached.record(stream);
  reached.synchronize();
}

void wait_for(Stream waiting, Stream producer) {
  if (waiting == producer) return;
  Event event(producer.device);
  event.record(producer);
  event.block(waiting);  // the event may be destroyed at once: the wait keeps what it needs
}

unsigned* block_counters(Stream stream) {
  std::lock_guard lock(pool().mutex);
  const auto found = pool().counters.find(stream.handle);
  ASSERT(found != pool().counters.end());
  return found->second;
}

// ---- events -------------------------------------------------------------------------------------

Event::Event(Device device, bool timed) : device_(device) {
  const DeviceGuard guard(device);
  CUDA_CHECK(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming));
}
Event::~Event() {
  if (!event_) return;
  try {
    const DeviceGuard guard(device_);
    cudaEventDestroy(event_);
  } catch (const Error&) {  // the device is lost, and the event with it
  }
}

void Event::record(Stream stream) {
  const DeviceGuard guard(device_);
  CUDA_CHECK(cudaEventRecord(event_, native(stream)));
}
void Event::block(Stream stream) const {
  const DeviceGuard guard(stream.device);
  CUDA_CHECK(cudaStreamWaitEvent(native(stream), event_, 0));
}

// Most waits are short. In longer ones other threads may have the processor.
void Event::synchronize() const {
  constexpr int kShort = 1000;
  for (int asked = 0; !done(); ++asked)
    if (asked >= kShort) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

bool Event::done() const {
  const DeviceGuard guard(device_);
  return cuda::done(cudaEventQuery(event_), "cudaEventQuery");
}

float Event::milliseconds_since(const Event& start) const {
  const DeviceGuard guard(device_);
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start.event_, event_));
  return milliseconds;
}

}  // namespace ringgrad::cuda
