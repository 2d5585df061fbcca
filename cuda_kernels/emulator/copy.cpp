// Emulated copies. Direction and range are checked against the allocations, which a device would only do by luck.
#include <cstring>

#include "core/error.h"
#include "cuda_kernels/emulator/runtime.h"

using namespace ringgrad::emulator;

namespace {

struct Place {
  bool device, pageable;
};

// Where the `bytes` at `memory` are; sets `error` when they reach beyond their allocation. Caller holds the lock.
Place locate(Runtime& runtime, const char* call, const void* memory, size_t bytes, cudaError_t& error) {
  uintptr_t begin = 0;
  const Allocation* allocation = runtime.find(memory, &begin);
  if (!allocation) return {false, true};
  const size_t offset = reinterpret_cast<uintptr_t>(memory) - begin;
  if (offset + bytes > allocation->bytes)
    error = fail(cudaErrorInvalidValue, ringgrad::str(call, " of ", bytes, " bytes at offset ", offset,
                                                      " of an allocation of ", allocation->bytes));
  return {allocation->device != kPinned, false};
}

bool fits(cudaMemcpyKind kind, Place from, Place to) {
  return kind == cudaMemcpyDefault ||
         (from.device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice) &&
          to.device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice));
}

}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
  auto& runtime = Runtime::instance();
  std::unique_lock lock(runtime.mutex);
  const auto stream = runtime.stream(handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle, "cudaMemcpyAsync on a stream that does not exist");
  if (bytes == 0) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  const Place source = locate(runtime, "cudaMemcpyAsync", from, bytes, error);
  const Place target = locate(runtime, "cudaMemcpyAsync", to, bytes, error);
  if (error) return error;
  if (!fits(kind, source, target))
    return fail(cudaErrorInvalidMemcpyDirection,
                ringgrad::str("from ", source.device ? "device" : "host", " to ", target.device ? "device" : "host",
                              " memory with cudaMemcpyKind ", static_cast<int>(kind)));
  const bool capturing = stream->capture != nullptr;
  lock.unlock();

  if (source.pageable && target.device && !capturing) {
    // Pageable memory is staged before the call returns; page-locked memory is read when the copy runs.
    auto staged = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
    return runtime.submit(stream, [=] { std::memcpy(to, staged->data(), bytes); });
  }
  error = runtime.submit(stream, [=] { std::memmove(to, from, bytes); });
  // A copy to pageable memory returns when it is done.
  if (!error && source.device && target.pageable && !capturing) error = cudaStreamSynchronize(handle);
  return error;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = forbid_while_capturing("cudaMemcpy")) return error;
  if (const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr)) return error;
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t handle) {
  auto& runtime = Runtime::instance();
  std::unique_lock lock(runtime.mutex);
  const auto stream = runtime.stream(handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle, "cudaMemsetAsync on a stream that does not exist");
  if (bytes == 0) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  const Place target = locate(runtime, "cudaMemsetAsync", memory, bytes, error);
  if (!error && !target.device) error = fail(cudaErrorInvalidValue, "cudaMemsetAsync of host memory");
  if (error) return error;
  lock.unlock();
  return runtime.submit(stream, [=] { std::memset(memory, value, bytes); });
}
