#include "ringgrad/cuda_kernels/emulator/guarded_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace ringgrad::emulator {
namespace {

#if defined(__SANITIZE_ADDRESS__) || !defined(PKEY_DISABLE_ACCESS)
int key() { return -1; }
void set_rights(bool) {}
#else
// Allocated once. A new key's memory is closed to every thread that was not given access.
int key() {
  static const int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  return key;
}
void set_rights(bool open) { pkey_set(key(), open ? 0 : PKEY_DISABLE_ACCESS); }
#endif

constinit thread_local int accesses = 0;

}  // namespace

bool memory_is_guarded() { return key() >= 0; }

void* allocate_guarded(size_t bytes) {
  void* memory = nullptr;
  if (!memory_is_guarded()) {
    // The size is exactly as requested, so that AddressSanitizer notices the first byte beyond it.
    if (posix_memalign(&memory, 256, bytes) != 0) return nullptr;
    return std::memset(memory, 0xFF, bytes);
  }
  memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::memset(memory, 0xFF, bytes);
  pkey_mprotect(memory, bytes, PROT_READ | PROT_WRITE, key());
  return memory;
}

void free_guarded(void* memory, size_t bytes) {
  if (memory_is_guarded())
    munmap(memory, bytes);
  else
    std::free(memory);
}

DeviceAccess::DeviceAccess() {
  if (memory_is_guarded() && accesses++ == 0) set_rights(true);
}
DeviceAccess::~DeviceAccess() {
  if (memory_is_guarded() && --accesses == 0) set_rights(false);
}

}  // namespace ringgrad::emulator
