// MembershipPage: the membership of an elastic job, in memory that the launcher shares with the
// ranks it starts. README.md says which side writes what, and when.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ringgrad/core/error.h"
#include "ringgrad/distributed/os/shared_memory.h"

namespace ringgrad {

// The group must be formed anew: a rank has ended, or one waits to join.
struct GroupChanged : DistributedError {
  using DistributedError::DistributedError;
};

// The launcher has removed this rank from the job: nothing that it does counts any more.
struct LeftBehindError : DistributedError {
  using DistributedError::DistributedError;
};

enum class MemberState : uint32_t {
  Empty,     // no process has this slot
  Starting,  // a process was started for it
  Waiting,   // the process waits for the next generation
  Member,    // the process belongs to generation `member_of`
  Removed,   // the process was left behind; it may still run
};

// One slot for each rank that the job may have. A rank writes into its own slot only, and changes
// its state only from Starting or Member to Waiting. The launcher makes all other changes.
struct MemberSlot {
  static constexpr size_t kMaxAddress = 1024;

  std::atomic<MemberState> state;
  // The last generation to which this rank has belonged; 0: none yet.
  std::atomic<uint64_t> member_of;
  // The rank's number in that generation.
  std::atomic<int32_t> rank;
  // This rank waits because it has missed another one for the timeout.
  std::atomic<bool> timed_out;
  // The rank holds a WritePermit.
  std::atomic<bool> writing;
  // The generation for which `address` is complete.
  std::atomic<uint64_t> address_of;
  uint32_t address_bytes;
  char address[kMaxAddress];
};

struct MembershipPage {
  static constexpr size_t kMaxWork = 16 << 10;

  // The generation that counts; 0: the founders have not all come.
  std::atomic<uint64_t> generation;
  // Ranks must leave this generation, and all before it, after the step under way.
  std::atomic<uint64_t> over;
  // The number of ranks in the generation.
  std::atomic<int32_t> size;
  // Too few ranks are left: they must save and end.
  std::atomic<bool> last;
  // The work is done.
  std::atomic<bool> finished;
  // The size of `work`; 0: nothing is written yet.
  std::atomic<uint32_t> work_bytes;
  // The lines that all ranks must have in common. Rank 0 of the first generation writes them.
  char work[kMaxWork];
  int32_t slots;
  // There are `slots` of these.
  MemberSlot slot[1];
};

class Membership {
 public:
  static Membership create(int slots);     // for the launcher. Throws OutOfMemoryError, LimitError.
  static Membership open(int descriptor);  // for a rank. Throws DistributedError.

  int descriptor() const { return memory_->descriptor(); }
  MembershipPage& page() const { return *page_; }
  int slots() const { return page_->slots; }
  MemberSlot& slot(int index) const { return page_->slot[index]; }

 private:
  explicit Membership(std::shared_ptr<SharedMemory> memory);

  std::shared_ptr<SharedMemory> memory_;
  MembershipPage* page_;
};

}  // namespace ringgrad
