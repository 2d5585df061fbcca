// What ranks of one machine see of each other's memory (shared_memory_peers.h).
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

// The first page of what each rank shows to the others. Everything in it is written by its owner
// alone, except `sleeping`. In memory the owner's staging area and its outgoing queues follow.
struct ControlPage {
  uint32_t magic;
  int32_t rank;
  int32_t size;
  uint32_t queue_capacity;
  cpu_set_t cpus;  // where the owner may run

  // 1: ring the bell (an eventfd) after a change. The rank that rings resets it.
  alignas(64) std::atomic<uint32_t> sleeping;

  // The collective that the owner has entered last, all in one cache line. `entered` is its
  // sequence, and is stored last.
  alignas(64) std::atomic<uint64_t> entered;
  std::atomic<uint64_t> fingerprint;  // of its frame
  std::atomic<uint64_t> segment;      // where its data lies: in this shared segment (0: in none),
  std::atomic<uint64_t> offset;       // from this byte on

  // How many further meeting points the owner has reached, over all collectives.
  alignas(64) std::atomic<uint64_t> arrived;

  // To tell how two fingerprints differ.
  alignas(64) std::array<std::atomic<uint64_t>, kFrameBytes / 8> frame;
};
inline constexpr size_t kControlPageBytes = 4096;
static_assert(sizeof(ControlPage) <= kControlPageBytes &&
              std::atomic<uint64_t>::is_always_lock_free);

// Room beside each rank's control page for data that does not lie in a shared segment.
inline constexpr size_t kStagingBytes = 1 << 20;

// Memory of which every rank has contributed a part of the same size.
struct SharedSegment {
  uint64_t id = 0;
  std::vector<std::shared_ptr<SharedMemory>> parts;  // by rank
};

}  // namespace ringgrad
