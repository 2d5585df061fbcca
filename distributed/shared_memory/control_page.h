// The memory that the ranks of one machine share (shared_memory_peers.h).
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ringgrad/distributed/os/shared_memory.h"
#include "ringgrad/distributed/transport/frame.h"

namespace ringgrad {

// The first page of the memory that a rank shares with the others. Only the owner writes it, except
// for `sleeping`. The owner's staging area and its outgoing queues follow in memory.
struct ControlPage {
  uint32_t magic;
  int32_t rank;
  int32_t size;
  uint32_t queue_capacity;
  cpu_set_t cpus;  // the cores on which the owner may run

  // 1: ring the bell (an eventfd) after a change. The rank that rings resets it.
  alignas(64) std::atomic<uint32_t> sleeping;

  // The collective that the owner has entered last, all in one cache line. `entered` is its
  // sequence number, and is stored last.
  alignas(64) std::atomic<uint64_t> entered;
  std::atomic<uint64_t> fingerprint;  // the frame's fingerprint
  // the shared segment with the owner's data; 0: the data lies in none
  std::atomic<uint64_t> segment;
  std::atomic<uint64_t> offset;  // the data's first byte in that segment

  // The number of barriers inside collectives that the owner has reached, over all collectives.
  alignas(64) std::atomic<uint64_t> arrived;

  // The frame itself, to say how two frames differ.
  alignas(64) std::array<std::atomic<uint64_t>, kFrameBytes / 8> frame;
};
inline constexpr size_t kControlPageBytes = 4096;
static_assert(sizeof(ControlPage) <= kControlPageBytes &&
              std::atomic<uint64_t>::is_always_lock_free);

// The bytes beside each rank's control page for data that lies in no shared segment.
inline constexpr size_t kStagingBytes = 1 << 20;

// Shared memory to which every rank has contributed a part of the same size.
struct SharedSegment {
  uint64_t id = 0;
  std::vector<std::shared_ptr<SharedMemory>> parts;  // by rank
};

}  // namespace ringgrad
