// LocalPeers: what the ranks of one machine share beside their streams, such as memory
// (shared_memory/shared_memory_peers.h). A transport whose channels are more than streams creates
// it.
#pragma once

#include <sched.h>

#include <memory>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/distributed/transport/failure_detector.h"

namespace ringgrad {

class LocalPeers {
 public:
  virtual ~LocalPeers() = default;

  // Called once on every rank, after all ranks have created theirs. Throws the failure detector's
  // errors, as all functions here.
  virtual void complete(Deadline deadline) = 0;
  // Adds the cores on which those ranks run.
  virtual void add_cores(cpu_set_t& cores) const = 0;
  // Tells them that this rank has entered the collective of ranks.position().
  virtual void show_position() = 0;
  // Called with true before this rank sleeps: from then on the others wake it by its doorbell. The
  // rank then looks once more for work before it sleeps. Called with false after it has woken.
  virtual void set_sleeping(bool sleeping) = 0;
  // Called when there is nothing to do. Throws if the reason is a rank that has left, or is in
  // another collective.
  virtual void check() = 0;
};

// `doorbell` is an eventfd that wakes this rank. Returns nullptr if the rank has no local peers.
// All arguments must outlive the result.
using FindLocalPeers = std::unique_ptr<LocalPeers> (*)(FailureDetector& ranks, PeerStreams& streams,
                                                       const FileDescriptor& doorbell,
                                                       Deadline deadline);
// The file that implements it sets it before main; it is nullptr in a program without that file.
inline constinit FindLocalPeers find_local_peers = nullptr;

}  // namespace ringgrad
