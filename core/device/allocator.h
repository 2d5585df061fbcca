// The caching allocator: freed blocks are kept in free lists by size and handed out again, so that
// a training step in its steady state asks the system for nothing. One account per device. It
// registers itself as the Allocator; a program that lacks it asks the system each time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ringgrad/core/device/device_backend.h"

namespace ringgrad {

struct MemoryStats {
  int64_t live_bytes = 0;      // in tensors now (rounded up to the block sizes)
  int64_t peak_bytes = 0;      // the largest live_bytes since start or reset_peak_memory
  int64_t reserved_bytes = 0;  // taken from the system: live plus cached
  int64_t allocations = 0;     // calls of allocate
  int64_t cache_misses = 0;    // calls that went to the system
};

MemoryStats memory_stats(Device device);
void reset_peak_memory(Device device);
// Gives cached blocks back to the system, except those that a recorded step uses again when it is
// replayed. Gives back none while a thread records a step on that device.
void empty_cache(Device device);

}  // namespace ringgrad
