// SharedMemoryPeers: the memory that the ranks of one machine share. Each rank contributes one
// piece of memory (control_page.h): a control page, a staging area and its outgoing queues. More
// segments follow on request. Each rank also has a doorbell, an eventfd, which other ranks ring
// when they change something while it sleeps.
//
// Note [Sleeping without missing the bell]
// A waiter sets `sleeping` on its control page, looks once more, and sleeps. A peer changes the
// shared memory, then reads `sleeping`, and rings the bell if it is set. All four accesses are
// sequentially consistent, so at least one of the two sees the other's write (Dekker's argument):
// the waiter finds the change, or the peer finds the sleeper. A ring that comes too late costs the
// waiter one more turn of its loop.
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
  // Creates this rank's memory, and hands it and this rank's doorbell to the ranks with which it is
  // connected by the transport "shm". channels[r] leads to rank r, or is nullptr. All arguments but
  // the last must outlive this object.
  SharedMemoryPeers(FailureDetector& ranks, PeerStreams& streams, const FileDescriptor& doorbell,
                    std::vector<SharedMemoryChannel*> channels, Deadline deadline);

  void complete(Deadline deadline) override;  // receives the other ranks' memory
  void add_cores(cpu_set_t& cores) const override;
  // Shows the others that this rank has entered the collective of ranks.position().
  void show_position() override;
  void set_sleeping(bool sleeping) override;  // see the note
  void check() override;

  bool opened(int peer) const { return peers_[peer].memory != nullptr; }
  bool all_opened() const;  // true if all ranks share this one's memory
  void ring_bell(int peer);
  // Called after this rank has raised its count. Wakes all sleeping ranks if this rank was the last
  // one to reach `value`. If each arrival woke all ranks, n ranks on few cores would wake n² times
  // at each barrier.
  void ring_if_complete(std::atomic<uint64_t> ControlPage::*count, uint64_t value);
  // Returns when all ranks whose memory is open have reached `value`. Throws as transport.wait().
  void wait_for_all(Transport& transport, std::atomic<uint64_t> ControlPage::*count,
                    uint64_t value);

  // These functions REQUIRE that the rank shares this one's memory, or is this one.
  ControlPage& control_page(int rank) const;
  std::byte* staging(int rank) const { return memory_of(rank) + kControlPageBytes; }
  // Throws OutOfStepError unless every rank whose memory is open has entered the same collective as
  // this one, with the same frame.
  void check_entered();
  // Collective of these ranks: returns a new segment to which each rank contributes `bytes` zeros.
  // Throws as transport.wait().
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
  bool needs_all_ = false;  // the current wait needs all ranks
};

// REQUIRES: the transport has local peers: a rank shares its memory, or this one is alone.
SharedMemoryPeers& memory_of(Transport& transport);

}  // namespace ringgrad
