// Emulated copies. Direction and range are checked against the allocations, which a device would only do by luck.
#include <cstring>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/runtime.h"

using namespace ringgrad::emulator;

namespace {

// Whether `memory` is a device's; sets `error` when the `bytes` there reach beyond their allocation. Caller holds the
// lock.
bool on_device(Runtime& runtime, const char* call, const void* memory, size_t bytes, cudaError_t& error) {
  uintptr_t begin = 0;
  const Allocation* allocation = runtime.find(memory, &begin);
  if (!allocation) return false;
  const size_t offset = reinterpret_cast<uintptr_t>(memory) - begin;
  if (offset + bytes > allocation->bytes)
    error = fail(cudaErrorInvalidValue, ringgrad::str(call, " of ", bytes, " bytes at offset ", offset,
                                                      " of an allocation of ", allocation->bytes));
  return allocation->device != kPinned;
}

bool fits(cudaMemcpyKind kind, bool from_device, bool to_device) {
  return kind == cudaMemcpyDefault ||
         (from_device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice) &&
          to_device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice));
}

}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
  auto& runtime = Runtime::instance();
  std::unique_lock lock(runtime.mutex);
  const auto stream = runtime.stream(handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle, "cudaMemcpyAsync on a stream that does not exist");
  if (bytes == 0) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  const bool from_device = on_device(runtime, "cudaMemcpyAsync", from, bytes, error);
  const bool to_device = on_device(runtime, "cudaMemcpyAsync", to, bytes, error);
  if (error) return error;
  if (!fits(kind, from_device, to_device))
    return fail(cudaErrorInvalidMemcpyDirection,
                ringgrad::str("from ", from_device ? "device" : "host", " to ", to_device ? "device" : "host",
                              " memory with cudaMemcpyKind ", static_cast<int>(kind)));
  lock.unlock();
  // The host's memory is read or written when the copy runs. Where it is pageable a device may do so before the call
  // returns, but CUDA does not promise it.
  return runtime.submit(stream, [=] { std::memmove(to, from, bytes); });
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
  const bool to_device = on_device(runtime, "cudaMemsetAsync", memory, bytes, error);
  if (!error && !to_device) error = fail(cudaErrorInvalidValue, "cudaMemsetAsync of host memory");
  if (error) return error;
  lock.unlock();
  return runtime.submit(stream, [=] { std::memset(memory, value, bytes); });
}
