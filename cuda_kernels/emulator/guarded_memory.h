// Device memory is closed to the host's code, as a device's is: what follows a device's address
// there ends with SIGSEGV.
//
// By protection keys (pkeys(7); x86 has them since 2017): pages have a key, and a register of each
// thread says which keys it may use. Where there are none device memory is open, and so it is under
// AddressSanitizer, which watches its bounds instead.
#pragma once

#include <cstddef>

namespace ringgrad::emulator {

// Memory of `bytes` > 0, every byte 0xFF, aligned as cudaMalloc promises. nullptr: there is none.
void* allocate_guarded(size_t bytes);
void free_guarded(void* memory, size_t bytes);

// Whether the host is kept from it.
bool memory_is_guarded();

// As long as one lives, its thread does a device's work.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
};

}  // namespace ringgrad::emulator
