#include "ringgrad/cuda_kernels/emulator/shared_memory.h"

#include <cstdlib>
#include <cstring>

#include "ringgrad/core/base/check.h"

namespace ringgrad::emulator {

void SharedMemory::Free::operator()(std::byte* memory) const { std::free(memory); }

SharedMemory::~SharedMemory() {
  if (memory_) ASAN_UNPOISON_MEMORY_REGION(memory_.get(), capacity_ + kRedZone);
}

void SharedMemory::begin_block(size_t bytes) {
  if (bytes > capacity_) {
    if (memory_) ASAN_UNPOISON_MEMORY_REGION(memory_.get(), capacity_ + kRedZone);
    capacity_ = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, capacity_ + kRedZone)));
    CHECK_AS(OutOfMemoryError, memory_ != nullptr, "emulator: no memory for ", bytes, " bytes of shared memory");
    data_ = memory_.get();
  }
  if (!memory_) return;
  ASAN_UNPOISON_MEMORY_REGION(data_, bytes);
  ASAN_POISON_MEMORY_REGION(data_ + bytes, capacity_ + kRedZone - bytes);
  std::memset(data_, 0xFF, bytes);
}

}  // namespace ringgrad::emulator
