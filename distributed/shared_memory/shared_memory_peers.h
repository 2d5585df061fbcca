// SharedMemoryPeers: what the ranks of one machine see of each other. Each contributes one piece of
// memory: a control page, a staging area and its outgoing queues (control page.h); further segments
// on request. And each has a doorbell, an eventfd, which the others ring after they have changed
// something while it sleeps.
//
// Note [Sleeping without missing the bell]
// A waiter sets its control page's `sleeping`, looks once more, and sleeps. A peer changes the
// shared memory, then reads `sleeping`, and rings the bell if it is set. All four accesses are
// sequentially consistent, so at least one of the two sees the other's write (Dekker's argument):
// the waiter finds the change, or the peer finds the sleeper. Rings that nobody needed any more
// only cost the waiter one turn of its loop.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/distributed/shared_memory/byte_queue.h"
#include "ringgrad/distributed/shared_memory/control_page.h"
#include "ringgrad/distributed/transport/transport.h"

namespace ringgrad {

class SharedMemoryChannel;

class SharedMemoryPeers final : public LocalPeers {
 public:
  // Creates this rank's memory and hands it and its doorbell to those with which it is connected by
  // the transport "shm", channels[r]. All but the last must outlive this.
  SharedMemoryPeers(FailureDetector& ranks, PeerStreams& streams, const FileDescriptor& doorbell,
                    std::vector<SharedMemoryChannel*> channels, Deadline deadline);

  void complete(Deadline deadline) override;  // receives theirs
  void add_cores(cpu_set_t& cores) const override;
  // Shows the others that this rank has entered the collective of ranks.position().
  void show_position() override;
  void set_sleeping(bool sleeping) override;  // see the note
  void check() override;

  bool opened(int peer) const { return peers_[peer].memory != nullptr; }
  bool all_opened() const;  // all ranks share this one's memory
  void ring_bell(int peer);
  // After this rank has raised its count: wakes all who sleep if that was what they waited for, the
  // last rank to come to `value`. Were each arrival to wake everybody, n ranks on few cores would
  // wake n² times at each meeting.
  void ring_if_complete(std::atomic<uint64_t> ControlPage::*count, uint64_t value);
  // Returns when all ranks whose memory is open have come so far. Throws as transport.wait().
  void wait_for_all(Transport& transport, std::atomic<uint64_t> ControlPage::*count,
                    uint64_t value);

  // What follows REQUIRES that the rank shares this one's memory, or is this one.
  ControlPage& control_page(int rank) const;
  std::byte* staging(int rank) const { return memory_of(rank) + kControlPageBytes; }
  // Throws OutOfStepError unless every such rank has entered the same collective as this one, with
  // the same frame.
  void check_entered();
  // Collective of these ranks: a new segment, to which each contributes `bytes` zeros. Throws as
  // transport.wait().
  SharedSegment share(Transport& transport, size_t bytes);

 private:
  struct Peer {
    std::shared_ptr<SharedMemory> memory;
    FileDescriptor doorbell;
  };

  std::byte* memory_of(int rank) const;
  void hand_over(int peer, int descriptor, Deadline deadline);
  std::optional<FileDescriptor> received_from(int peer);
  void open(int peer, Deadline deadline);
  bool all_are_at(std::atomic<uint64_t> ControlPage::*count, uint64_t value) const;
  void compare_control_page(int rank, uint64_t sequence);

  FailureDetector& ranks_;
  PeerStreams& streams_;
  const std::vector<SharedMemoryChannel*> channels_;  // by rank
  const int rank_;
  const int size_;
  std::vector<Peer> peers_;  // by rank
  std::shared_ptr<SharedMemory> memory_;
  uint64_t segments_ = 0;
  bool needs_all_ = false;  // for what it waits
};

// REQUIRES: the transport has them: a rank shares its memory, or is alone.
SharedMemoryPeers& memory_of(Transport& transport);

}  // namespace ringgrad
