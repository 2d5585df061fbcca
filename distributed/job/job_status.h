// JobStatus: what each rank of this machine is doing, in shared memory that its launcher reads. So
// the launcher knows it even after a rank was killed. Without a launcher the same words go to the
// process's own memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ringgrad/distributed/failure.h"
#include "ringgrad/distributed/os/shared_memory.h"

namespace ringgrad {

enum class Phase : uint32_t {
  Starting,
  Rendezvous,
  Setup,
  Data,
  Forward,
  Backward,
  Optimizer,
  Evaluation,
  Checkpoint,
  Finished,
};
const char* name(Phase phase);  // "backward"

// Written by one rank, read by its launcher.
struct RankStatus {
  static constexpr size_t kMaxText = 1000;

  std::atomic<Phase> phase;
  // The bucket of the last all-reduce, plus 1; 0: none yet.
  std::atomic<int32_t> bucket;
  // The training step, plus 1; 0: before the first.
  std::atomic<int64_t> step;
  // Steady clock, nanoseconds; 0: has not failed.
  std::atomic<int64_t> failed_at;
  std::atomic<FailureKind> failure;
  // The failure is another rank's: this one has only been told of it, or misses a rank.
  std::atomic<bool> noticed;
  // Words for the failure; complete once failed_at is set.
  char text[kMaxText + 1];
  // Counts long waits; `waiting` says what the last one is for.
  std::atomic<uint32_t> waits;
  char waiting[kMaxText + 1];
};
inline constexpr size_t kRankStatusBytes = 2112;
static_assert(sizeof(RankStatus) <= kRankStatusBytes);

// Returns this process's own status, never null. The launcher passes RINGGRAD_STATUS_FD and
// LOCAL_RANK.
RankStatus& own_status();

void set_phase(Phase phase);
void set_step(int64_t step);
// Records the first failure of this process; later ones follow from it and are not recorded.
// `noticed`: it is another rank's.
void report_failure(const Failure& failure, bool noticed) noexcept;
// Says which rank this one has been waiting for, and for how long. The launcher prints it.
void report_waiting(const std::string& text) noexcept;
// Returns true if a launcher has started this process as a rank and knows its failure. The launcher
// prints the job's first failure, so this process need not print its own. Returns false in a
// process that a rank has started: its failure need not be the rank's failure.
bool launcher_knows_failure();

// The launcher's side: the statuses of its ranks.
class JobStatus {
 public:
  explicit JobStatus(int local_size);
  int descriptor() const { return memory_->descriptor(); }
  const RankStatus& rank(int local_rank) const;
  // Another process becomes this rank. REQUIRES: the one before has ended.
  void clear(int local_rank);

 private:
  std::shared_ptr<SharedMemory> memory_;
};

}  // namespace ringgrad
