// Emulated streams decide which operation runs when, and on which host thread.
//
// Streams have no threads. An operation runs on the host thread that queues it or waits for it. So
// the order is a function of the program and the seed. A failure repeats, and a forgotten wait is
// noticed each time, as work that has not been done. With threads it would be noticed in one run of
// many.
#include <algorithm>
#include <utility>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/guarded_memory.h"
#include "ringgrad/cuda_kernels/emulator/runtime.h"

namespace ringgrad::emulator {

using Lock = std::unique_lock<std::mutex>;

static constinit thread_local int chosen_operations = 0;
bool must_not_wait() { return chosen_operations > 0; }

std::shared_ptr<CUstream_st> Runtime::stream(const char* call, CUstream_st* handle) {
  const int device = current_device();
  if (!handle) return devices[static_cast<size_t>(device)].null_stream;
  if (const auto found = streams.find(handle); found != streams.end()) return found->second;
  fail(cudaErrorInvalidResourceHandle, std::string(call) + " on a stream that does not exist");
  return nullptr;
}

std::shared_ptr<CUstream_st> Runtime::find_stream(const char* call, CUstream_st* handle) {
  std::lock_guard lock(mutex);
  return stream(call, handle);
}

cudaError_t Runtime::submit(const std::shared_ptr<CUstream_st>& stream, Operation operation,
                            const char* name) {
  wait_for_holder();
  if (const cudaError_t error = refuse_if_lost()) return error;
  Lock lock(mutex);
  if (const auto& capture = stream->capture) {
    const int node = static_cast<int>(capture->nodes.size());
    capture->nodes.push_back({std::move(operation), name, stream->frontier});
    stream->frontier = {node};
    return cudaSuccess;
  }
  stream->queue.push_back(std::move(operation));
  const uint64_t position = ++stream->submitted;
  lock.unlock();
  if (config().streams != StreamOrder::Eager) return cudaSuccess;
  drain(stream, position);
  return refuse_if_lost(stream->device);
}

void Runtime::drain(const std::shared_ptr<CUstream_st>& stream, uint64_t position) {
  Lock lock(mutex);
  while (stream->completed < position) {
    if (stream->running) {
      if (must_not_wait()) throw NotReady();
      progress.wait(lock);  // another host thread runs it
      continue;
    }
    if (config().streams == StreamOrder::Random && !must_not_wait() &&
        run_another_stream(lock, *stream))
      continue;
    Operation operation = std::move(stream->queue.front());
    stream->queue.pop_front();
    stream->running = true;
    lock.unlock();
    std::string failure;
    try {
      const DeviceAccess access;
      operation();
    } catch (const NotReady&) {
      lock.lock();
      stream->running = false;
      stream->queue.push_front(std::move(operation));
      progress.notify_all();
      throw;
    } catch (const std::exception& error) {
      failure = error.what();
    }
    lock.lock();
    stream->running = false;
    ++stream->completed;
    auto& lost = devices[static_cast<size_t>(stream->device)].failure;
    if (!failure.empty() && !lost) lost = new std::string(failure);  // one thread at a time
    progress.notify_all();
  }
}

// Every second time, lets an operation of another stream of the device run first if it is ready, as
// a device may. So only the order that a program enforces by events or waits is kept. Returns true
// if the lock was released meanwhile.
bool Runtime::run_another_stream(Lock& lock, const CUstream_st& stream) {
  static uint32_t seed = 0;
  if (seed != config().streams_seed) random.seed(seed = config().streams_seed);
  if (random() >> 8 & 1) return false;
  std::vector<std::shared_ptr<CUstream_st>> others;
  for (const auto& [handle, other] : streams)
    if (other->device == stream.device && handle != &stream && !other->running &&
        !other->queue.empty())
      others.push_back(other);
  if (others.empty()) return false;
  const auto other = others[random() % others.size()];
  const uint64_t position = other->completed + 1;
  lock.unlock();
  drain_without_waiting(other, position);
  lock.lock();
  return true;
}

bool Runtime::drain_without_waiting(const std::shared_ptr<CUstream_st>& stream, uint64_t position) {
  bool ready = true;
  ++chosen_operations;
  try {
    drain(stream, position);
  } catch (const NotReady&) {
    ready = false;
  }
  --chosen_operations;
  return ready;
}

void Runtime::advance(const std::shared_ptr<CUstream_st>& stream) {
  uint64_t position;
  {
    std::lock_guard lock(mutex);
    if (stream->running || stream->helped || stream->completed == stream->submitted) return;
    position = stream->completed + 1;
  }
  if (config().streams == StreamOrder::Random) {
    Lock lock(mutex);
    if (run_another_stream(lock, *stream)) return;
  }
  if (drain_without_waiting(stream, position)) return;
  {
    std::lock_guard lock(mutex);
    if (std::exchange(stream->helped, true)) return;
  }
  std::thread([this, stream, position] {
    drain(stream, position);
    std::lock_guard lock(mutex);
    stream->helped = false;
  }).detach();
}

void Runtime::drain_all(const std::shared_ptr<CUstream_st>& stream) {
  uint64_t position;
  {
    std::lock_guard lock(mutex);
    position = stream->submitted;
  }
  drain(stream, position);
}

void Runtime::drain_device(int device) {
  std::vector<std::shared_ptr<CUstream_st>> of_device;
  {
    std::lock_guard lock(mutex);
    of_device.push_back(devices[static_cast<size_t>(device)].null_stream);
    for (const auto& [handle, stream] : streams)
      if (stream->device == device) of_device.push_back(stream);
  }
  for (const auto& stream : of_device) drain_all(stream);
}

}  // namespace ringgrad::emulator

using namespace ringgrad::emulator;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  if (flags != cudaStreamNonBlocking)
    return fail(cudaErrorInvalidValue, "emulated streams are non-blocking");
  if (const cudaError_t error = refuse_if_lost()) return error;
  auto& runtime = Runtime::instance();
  auto stream = std::make_shared<CUstream_st>();
  stream->device = current_device();
  *handle = stream.get();
  std::lock_guard lock(runtime.mutex);
  runtime.streams[stream.get()] = std::move(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const auto stream = Runtime::instance().find_stream("cudaStreamSynchronize", handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = forbid_while_capturing("cudaStreamSynchronize", *stream))
    return error;
  Runtime::instance().drain_all(stream);
  return refuse_if_lost(stream->device);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  wait_for_holder();
  const auto stream = Runtime::instance().find_stream("cudaStreamQuery", handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = forbid_while_capturing("cudaStreamQuery", *stream)) return error;
  {
    std::lock_guard lock(Runtime::instance().mutex);
    if (stream->completed < stream->submitted) return fail(cudaErrorNotReady);
  }
  return refuse_if_lost(stream->device);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, void (*function)(void*), void* data) {
  const auto stream = Runtime::instance().find_stream("cudaLaunchHostFunc", handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  return Runtime::instance().submit(stream, [=] { function(data); });
}
