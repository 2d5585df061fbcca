// The page on which the membership of an elastic job stands: memory that the launcher shares with
// the ranks it starts. README.md says who writes what when.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ringgrad/core/error.h"
#include "ringgrad/distributed/os/shared_memory.h"

namespace ringgrad {

// The group is to be formed anew: a rank has gone, or one waits to join.
struct GroupChanged : DistributedError {
  using DistributedError::DistributedError;
};

// The launcher has struck this rank off the list: nothing that it does counts any more.
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

// One for each rank that there may be. A rank writes into its own only, and turns Coming or Member
// into AtDoor; all other turns are the launcher's.
struct MemberSlot {
  static constexpr size_t kMaxAddress = 1024;

  std::atomic<MemberState> state;
  // The last generation that it was in; 0: none yet.
  std::atomic<uint64_t> member_of;
  // The rank in that generation.
  std::atomic<int32_t> rank;
  // It came to the door because it has missed another one for the timeout.
  std::atomic<bool> timed_out;
  // Holds a WritePermit.
  std::atomic<bool> writing;
  // The generation for which `address` is complete.
  std::atomic<uint64_t> address_of;
  uint32_t address_bytes;
  char address[kMaxAddress];
};

struct MembershipPage {
  static constexpr size_t kMaxWork = 16 << 10;

  // 0: the founders have not all come.
  std::atomic<uint64_t> generation;
  // This generation, and those before, are to be left after the step under way.
  std::atomic<uint64_t> over;
  // The number of ranks in the generation.
  std::atomic<int32_t> size;
  // Too few ranks are left: save, and end.
  std::atomic<bool> last;
  // The work is done.
  std::atomic<bool> finished;
  // 0: not written yet.
  std::atomic<uint32_t> work_bytes;
  // The lines that every rank must have in common, by the first generation's rank 0.
  char work[kMaxWork];
  int32_t slots;
  // As many as `slots` says.
  MemberSlot slot[1];
};

class Membership {
 public:
  static Membership create(int slots);     // the launcher's. Throws OutOfMemoryError, LimitError.
  static Membership open(int descriptor);  // a rank's. Throws DistributedError.

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
