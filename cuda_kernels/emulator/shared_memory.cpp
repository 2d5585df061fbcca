#include "ringgrad/cuda_kernels/emulator/shared_memory.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/emulator/grid.h"

namespace ringgrad::emulator {

void SharedMemory::Free::operator()(std::byte* memory) const { std::free(memory); }

SharedMemory::~SharedMemory() {
  if (memory_) ASAN_UNPOISON_MEMORY_REGION(memory_.get(), capacity_ + kRedZone);
}

void SharedMemory::begin_block(size_t bytes) {
  const size_t needed = kFirstSharedAddress + bytes;
  if (needed > capacity_ && bytes > 0) {
    if (memory_) ASAN_UNPOISON_MEMORY_REGION(memory_.get(), capacity_ + kRedZone);
    capacity_ = (needed + kAlignment - 1) / kAlignment * kAlignment;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, capacity_ + kRedZone)));
    CHECK_AS(OutOfMemoryError, memory_ != nullptr, "emulator: no memory for ", bytes,
             " bytes of shared memory");
    data_ = memory_.get() + kFirstSharedAddress;
  }
  if (!memory_) return;
  ASAN_UNPOISON_MEMORY_REGION(data_, bytes);
  ASAN_POISON_MEMORY_REGION(memory_.get(), kFirstSharedAddress);
  ASAN_POISON_MEMORY_REGION(data_ + bytes, capacity_ + kRedZone - needed);
  std::memset(data_, 0xFF, bytes);
}

void SharedMemory::end_block(size_t bytes) {
  std::memset(data_, 0xFF, bytes);
  ASAN_POISON_MEMORY_REGION(data_, bytes);
}

std::string AsyncCopies::start(void* destination, const void* source, size_t bytes,
                               size_t zero_fill, const void* pc) {
  if (bytes != 4 && bytes != 8 && bytes != 16)
    return str("cp.async of ", bytes, " bytes, expected 4, 8 or 16");
  if (reinterpret_cast<uintptr_t>(destination) % bytes ||
      reinterpret_cast<uintptr_t>(source) % bytes)
    return str("cp.async of ", bytes, " bytes to ", destination, " from ", source,
               ", expected addresses aligned to ", bytes);
  if (zero_fill > bytes)
    return str("cp.async fills ", zero_fill, " of ", bytes, " bytes with zeros");
  if (observer && bytes > zero_fill)
    observer->access({source, bytes - zero_fill, false, false, pc});
  if (observer) observer->access({destination, bytes, true, false, pc, AsyncCopy::Started});
  std::memset(destination, 0xFF, bytes);
  copies_.push_back({destination, source, bytes, zero_fill, group_, pc});
  return "";
}

void AsyncCopies::wait_prior(int groups) {
  size_t done = 0;
  for (; done < copies_.size() && copies_[done].group < group_ - groups; ++done) {
    const Copy& copy = copies_[done];
    const size_t copied = copy.bytes - copy.zero_fill;
    if (observer)
      observer->access({copy.destination, copy.bytes, true, false, copy.pc, AsyncCopy::Landed});
    std::memcpy(copy.destination, copy.source, copied);
    std::memset(static_cast<char*>(copy.destination) + copied, 0, copy.zero_fill);
  }
  copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(done));
}

void AsyncCopies::commit() { ++group_; }

void AsyncCopies::clear() {
  copies_.clear();
  group_ = 0;
}

}  // namespace ringgrad::emulator
