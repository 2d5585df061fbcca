// LocalPeers: what a rank has with others beside their streams, such as memory that they share
// (shared_memory/shared_memory_peers.h). A transport whose channels are more than streams makes it.
#pragma once

#include <sched.h>

#include <memory>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/distributed/transport/failure_detector.h"

namespace ringgrad {

class LocalPeers {
 public:
  virtual ~LocalPeers() = default;

  // Called once on every rank, when all ranks have made theirs. Errors are those of the failure
  // detector, as everywhere here.
  virtual void complete(Deadline deadline) = 0;
  // Adds the cores on which they run.
  virtual void add_cores(cpu_set_t& cores) const = 0;
  // This rank has entered the collective of ranks.position().
  virtual void show_position() = 0;
  // Before this rank sleeps: from then on they wake it by its doorbell. Then it looks once more
  // whether anything is to be done; and after it.
  virtual void set_sleeping(bool sleeping) = 0;
  // Nothing is to be done: throws where that is because of one that has left, or is in another
  // collective.
  virtual void check() = 0;
};

// `doorbell`: an eventfd that wakes this rank. nullptr: it has none. All arguments must outlive it.
using FindLocalPeers = std::unique_ptr<LocalPeers> (*)(FailureDetector& ranks, PeerStreams& streams,
                                                       const FileDescriptor& doorbell,
                                                       Deadline deadline);
// Set before main by the file that implements it; nullptr in a program without.
inline constinit FindLocalPeers find_local_peers = nullptr;

}  // namespace ringgrad
