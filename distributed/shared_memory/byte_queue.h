// A queue of bytes in shared memory, for one writer and one reader, which may be different
// processes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>

#include "ringgrad/core/error.h"

namespace ringgrad {

// Lamport's ring buffer (1977): `written` and `read` only grow, and each has one writer. They are
// stored with sequential consistency because of the handshake with sleepers; see Note [Sleeping
// without missing the bell] in shared_memory_peers.h.
class ByteQueue {
 public:
  static constexpr size_t footprint(size_t capacity) { return sizeof(Counters) + capacity; }

  // REQUIRES: memory is zero or holds such a queue, is aligned to 64, and has footprint(capacity)
  // bytes.
  ByteQueue(std::byte* memory, size_t capacity)
      : counters_(std::launder(reinterpret_cast<Counters*>(memory))),
        bytes_(memory + sizeof(Counters)),
        capacity_(capacity) {}

  // Takes as many bytes as there is room for, and returns their number. Writer only.
  size_t write(std::span<const std::byte> bytes) {
    const uint64_t written = counters_->written.load(std::memory_order_relaxed);
    const size_t n = std::min(bytes.size(), capacity_ - used(written, counters_->read.load()));
    if (n == 0) return 0;
    const size_t at = written % capacity_;
    const size_t first = std::min(n, capacity_ - at);
    std::memcpy(bytes_ + at, bytes.data(), first);
    std::memcpy(bytes_, bytes.data() + first, n - first);
    counters_->written.store(written + n);
    return n;
  }

  // Fills as much of `bytes` as is there, and returns how much. Reader only.
  size_t read(std::span<std::byte> bytes) {
    const uint64_t read = counters_->read.load(std::memory_order_relaxed);
    const size_t n = std::min(bytes.size(), used(counters_->written.load(), read));
    if (n == 0) return 0;
    const size_t at = read % capacity_;
    const size_t first = std::min(n, capacity_ - at);
    std::memcpy(bytes.data(), bytes_ + at, first);
    std::memcpy(bytes.data() + first, bytes_, n - first);
    counters_->read.store(read + n);
    return n;
  }

 private:
  struct Counters {
    alignas(64) std::atomic<uint64_t> written;
    alignas(64) std::atomic<uint64_t> read;
  };

  size_t used(uint64_t written, uint64_t read) const {
    if (written - read > capacity_)
      throw DistributedError("shared memory: a queue's counters are damaged");
    return written - read;
  }

  Counters* counters_;
  std::byte* bytes_;
  size_t capacity_;
};

}  // namespace ringgrad
