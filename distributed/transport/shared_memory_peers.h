// SharedMemoryPeers: what the ranks of one machine see of each other. Each contributes one piece of
// memory: a board, a staging area and its outgoing queues (board.h); further segments on request.
// And each has a doorbell, an eventfd, which the others ring after they have changed something
// while it sleeps.
//
// Note [Sleeping without missing the bell]
// A waiter sets its board's `sleeping`, looks once more, and sleeps. A peer changes the shared
// memory, then reads `sleeping`, and rings the bell if it is set. All four accesses are
// sequentially consistent, so at least one of the two sees the other's write (Dekker's argument):
// the waiter finds the change, or the peer finds the sleeper. Rings that nobody needed any more
// only cost the waiter one turn of its loop.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/distributed/transport/board.h"
#include "ringgrad/distributed/transport/byte_queue.h"
#include "ringgrad/distributed/transport/failure_detector.h"

namespace ringgrad {

struct QueuePair {
  ByteQueue outgoing, incoming;
};

class SharedMemoryPeers {
 public:
  // local[r]: rank r shares this machine's memory. Where any does, or the group is this rank alone,
  // creates this rank's memory and hands it and its doorbell to the others; errors are those of
  // `ranks`. Both must outlive this.
  SharedMemoryPeers(FailureDetector& ranks, const std::vector<bool>& local,
                    const FileDescriptor& doorbell, Deadline deadline);

  // Receives a local peer's memory: the queue to it, and the one from it.
  QueuePair open(int peer, Deadline deadline);

  bool opened(int peer) const { return peers_[peer].memory != nullptr; }
  int usable_cores() const;  // of this rank and of all that are open

  // Whether this rank sleeps; see the note. Nothing without memory.
  void set_sleeping(bool sleeping);
  void ring_bell(int peer);
  // After this rank has raised its count: wakes all who sleep if that was what they waited for, the
  // last rank to come to `value`. Were each arrival to wake everybody, n ranks on few cores would
  // wake n² times at each meeting.
  void ring_if_complete(std::atomic<uint64_t> Board::*count, uint64_t value);
  // Whether all ranks whose memory is open have come so far.
  bool complete(std::atomic<uint64_t> Board::*count, uint64_t value) const;

  // Shows the others that this rank has entered the collective of ranks.position(). Nothing without
  // memory.
  void show_position();
  // Before this rank sleeps: throws OutOfStepError where another one is in the same collective, by
  // its number, with another frame.
  void compare_boards();

  // What follows REQUIRES that the rank shares this one's memory, or is this one.
  Board& board(int rank) const;
  std::byte* staging(int rank) const { return memory_of(rank) + kBoardBytes; }
  // Throws OutOfStepError unless every such rank has entered the same collective as this one, with
  // the same frame.
  void check_entered();
  // A new segment, of which this rank contributes its part, in zeros; every other such rank's is
  // opened when it has come.
  SharedSegment contribute(size_t bytes, Deadline deadline);
  void open_part(SharedSegment& segment, int peer);

 private:
  struct Peer {
    std::shared_ptr<SharedMemory> memory;
    FileDescriptor doorbell;
  };

  std::byte* memory_of(int rank) const;
  void hand_over(int peer, int descriptor, Deadline deadline);
  void compare_board(int rank, uint64_t sequence);

  FailureDetector& ranks_;
  const int rank_, size_;
  std::vector<Peer> peers_;  // by rank
  std::shared_ptr<SharedMemory> memory_;
  uint64_t segments_ = 0;
};

}  // namespace ringgrad
