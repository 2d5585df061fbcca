// The caching allocator. It keeps freed blocks in free lists by size and hands them out again, so
// that a training step in its steady state takes nothing from the system. Each device has one
// account. The allocator registers itself as the Allocator; without it every allocation goes to the
// system.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ringgrad/core/device/device_backend.h"

namespace ringgrad {

struct MemoryStats {
  int64_t live_bytes = 0;      // in tensors now (rounded up to the block sizes)
  int64_t peak_bytes = 0;      // largest live_bytes since the start or reset_peak_memory()
  int64_t reserved_bytes = 0;  // taken from the system: live plus cached
  int64_t allocations = 0;     // calls of allocate
  int64_t cache_misses = 0;    // calls that went to the system
};

MemoryStats memory_stats(Device device);
void reset_peak_memory(Device device);
// Counts so many bytes as live, or as live no longer, that are not the allocator's own: memory that
// ranks share, and pages that were given back. Thread-safe.
void count_memory(Device device, int64_t bytes);
// Returns cached blocks to the system, except those that a replay of a recorded step uses. Does
// nothing while a thread records a step on that device.
void empty_cache(Device device);

}  // namespace ringgrad
