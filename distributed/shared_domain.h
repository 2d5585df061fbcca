// What ranks of one machine can do besides sending bytes: read each other's memory. shared_all_reduce.cpp uses it.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "distributed/frame.h"
#include "distributed/shared_memory.h"

namespace ringgrad {

// The first page of what each rank shows to the others. Everything in it is written by its owner alone, except
// `sleeping`. In memory it is followed by the owner's outgoing queues.
struct Board {
  uint32_t magic;
  int32_t rank, size;
  uint32_t queue_capacity;
  cpu_set_t cpus;  // where the owner may run

  alignas(64) std::atomic<uint32_t> sleeping;  // 1: ring the bell (an eventfd) after a change. Reset by whoever rings.

  // A collective by direct access: how often the owner has arrived at a meeting point, and with what, all in one cache
  // line. The fields are published by `arrived`, and stay until everybody has arrived at the next point.
  alignas(64) std::atomic<uint64_t> arrived;
  uint64_t fingerprint;     // of the frame
  uint64_t segment;         // the shared segment in which its data lies
  uint64_t offset;          // and where, in bytes
  alignas(64) Frame frame;  // read only to tell how two fingerprints differ
};
inline constexpr size_t kBoardBytes = 4096;
static_assert(sizeof(Board) <= kBoardBytes);

// Memory of which every rank has contributed a part of the same size.
struct SharedSegment {
  uint64_t id = 0;
  std::vector<std::shared_ptr<SharedMemory>> parts;  // by rank
};

class SharedDomain {
 public:
  virtual ~SharedDomain() = default;

  virtual Board& board(int rank) = 0;
  // Wakes every rank that sleeps; to be called after a change in this rank's own board.
  virtual void ring_bells() = 0;
  // Returns once done(context) holds, which other ranks' boards must bring about. Throws as Transport::wait does.
  virtual void wait_until(bool (*done)(void* context), void* context) = 0;
  // Collective: every rank contributes `bytes` zeros.
  virtual SharedSegment share(size_t bytes) = 0;
};

}  // namespace ringgrad
