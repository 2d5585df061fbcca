// Closes device memory to the host's code, as on a device: host code that follows a device address
// ends with SIGSEGV.
//
// This uses protection keys (pkeys(7); x86 has them since 2017). Pages have a key, and a register
// of each thread says which keys it may use. Without protection keys device memory is open. It is
// also open under AddressSanitizer, which checks its bounds instead.
#pragma once

#include <cstddef>

namespace ringgrad::emulator {

// Allocates `bytes` > 0, every byte 0xFF, aligned as cudaMalloc guarantees. Returns nullptr if
// there is no memory.
void* allocate_guarded(size_t bytes);
void free_guarded(void* memory, size_t bytes);

// Returns true if the host cannot access it.
bool memory_is_guarded();

// While one lives, its thread may access device memory.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
};

}  // namespace ringgrad::emulator
