// Emulated device memory: each device has an account, and memory is filled with NaN when it is
// allocated. Direction and range of copies are checked against the allocations, which a real device
// would do only by luck.
#include <cstring>
#include <new>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/guarded_memory.h"
#include "ringgrad/cuda_kernels/emulator/runtime.h"

namespace ringgrad::emulator {

const Allocation* Runtime::find(const void* memory, uintptr_t* begin) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return nullptr;
  const auto& [first, allocation] = *--after;
  if (address >= first + allocation.bytes) return nullptr;
  if (begin) *begin = first;
  return &allocation;
}

namespace {

std::recursive_mutex holding;  // locked by a copy that holds other threads' calls

}  // namespace

void wait_for_holder() {
  if (config().pageable_copies_hold) std::lock_guard wait(holding);
}

}  // namespace ringgrad::emulator

using namespace ringgrad::emulator;

// ---- allocations --------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = nullptr;
  if (const cudaError_t error = forbid_while_capturing("cudaMalloc")) return error;
  if (bytes == 0) return cudaSuccess;
  auto& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  DeviceState& device = runtime.devices[static_cast<size_t>(current_device())];
  const size_t limit = config().memory_bytes;
  if (bytes > limit || device.used_bytes > limit - bytes || !(*memory = allocate_guarded(bytes)))
    return fail(
        cudaErrorMemoryAllocation,
        ringgrad::str("asked for ", bytes, " bytes of device ", current_device(), ", where ",
                      device.used_bytes, " of ", limit, " are in use (RINGGRAD_EMU_MEMORY_MB)"));
  device.used_bytes += bytes;
  runtime.allocations[reinterpret_cast<uintptr_t>(*memory)] = {bytes, current_device()};
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (!memory) return cudaSuccess;
  if (const cudaError_t error = forbid_while_capturing("cudaFree")) return error;
  auto& runtime = Runtime::instance();
  const auto address = reinterpret_cast<uintptr_t>(memory);
  int device;
  {
    std::lock_guard lock(runtime.mutex);
    const auto found = runtime.allocations.find(address);
    if (found == runtime.allocations.end())
      return fail(cudaErrorInvalidValue, "cudaFree of an address that cudaMalloc did not return");
    device = found->second.device;
  }
  runtime.drain_device(device);
  std::lock_guard lock(runtime.mutex);
  const auto found = runtime.allocations.find(address);
  const size_t bytes = found->second.bytes;
  runtime.devices[static_cast<size_t>(device)].used_bytes -= bytes;
  runtime.allocations.erase(found);
  free_guarded(memory, bytes);
  return refuse_if_lost(device);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t error = refuse_if_lost()) return error;
  auto& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  const size_t used = runtime.devices[static_cast<size_t>(current_device())].used_bytes;
  *total = config().memory_bytes;
  *free = used < *total ? *total - used : 0;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags) {
  *memory = nullptr;
  if (flags != cudaHostAllocPortable)
    return fail(cudaErrorInvalidValue, "emulated page-locked memory is portable");
  if (const cudaError_t error = forbid_while_capturing("cudaHostAlloc")) return error;
  *memory = ::operator new(bytes);
  auto& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  runtime.page_locked[reinterpret_cast<uintptr_t>(*memory)] = bytes;
  return cudaSuccess;
}

// ---- copies -------------------------------------------------------------------------------------

namespace {

// Returns true if `memory` belongs to a device. Sets `error` if the `bytes` there exceed their
// allocation. REQUIRES: the lock.
bool on_device(Runtime& runtime, const void* memory, size_t bytes, cudaError_t& error) {
  uintptr_t begin = 0;
  const Allocation* allocation = runtime.find(memory, &begin);
  if (!allocation) return false;
  const size_t offset = reinterpret_cast<uintptr_t>(memory) - begin;
  if (offset + bytes > allocation->bytes)
    error = fail(cudaErrorInvalidValue,
                 ringgrad::str("cudaMemcpyAsync of ", bytes, " bytes at offset ", offset,
                               " of an allocation of ", allocation->bytes));
  return true;
}

bool fits(cudaMemcpyKind kind, bool from_device, bool to_device) {
  return kind == cudaMemcpyDefault ||
         (from_device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice) &&
          to_device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice));
}

// REQUIRES: the lock.
bool is_page_locked(const Runtime& runtime, const void* memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  auto after = runtime.page_locked.upper_bound(address);
  if (after == runtime.page_locked.begin()) return false;
  const auto& [first, bytes] = *--after;
  return address < first + bytes;
}

// `staged` means that host memory is read at once.
cudaError_t queue_copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                       cudaStream_t handle, bool staged) {
  auto& runtime = Runtime::instance();
  std::unique_lock lock(runtime.mutex);
  const auto stream = runtime.stream("cudaMemcpyAsync", handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  const bool from_device = on_device(runtime, from, bytes, error);
  const bool to_device = on_device(runtime, to, bytes, error);
  if (error) return error;
  if (!fits(kind, from_device, to_device))
    return fail(cudaErrorInvalidMemcpyDirection,
                ringgrad::str("from ", from_device ? "device" : "host", " to ",
                              to_device ? "device" : "host", " memory with cudaMemcpyKind ",
                              static_cast<int>(kind)));
  const bool pageable = (!from_device && !is_page_locked(runtime, from)) ||
                        (!to_device && !is_page_locked(runtime, to));
  lock.unlock();
  if (pageable && config().pageable_copies_hold) {
    const std::lock_guard hold(holding);
    error = runtime.submit(stream, [=] { std::memmove(to, from, bytes); });
    runtime.drain_all(stream);
    return error;
  }
  if (staged && !from_device)
    return runtime.submit(stream, [to, held = std::string(static_cast<const char*>(from), bytes)] {
      std::memcpy(to, held.data(), held.size());
    });
  return runtime.submit(stream, [=] { std::memmove(to, from, bytes); });
}

}  // namespace

// The host's memory is read or written when the copy runs. If it is pageable, a device may do so
// before the call returns, but CUDA does not guarantee it.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  return queue_copy(to, from, bytes, kind, handle, /*staged=*/false);
}

// A copy from pageable memory returns when the memory has been read, not when the device has the
// data ("API synchronization behavior" in CUDA's reference). Streams that do not wait for the null
// stream may still find the old data.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = forbid_while_capturing("cudaMemcpy")) return error;
  const bool from_host = kind == cudaMemcpyHostToDevice;
  if (const cudaError_t error = queue_copy(to, from, bytes, kind, nullptr, from_host)) return error;
  return from_host ? cudaSuccess : cudaStreamSynchronize(nullptr);
}
