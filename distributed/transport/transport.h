// Transport: ordered, reliable bytes between the ranks of a group. Anything that has one is a rank:
// a process, or a thread. It knows neither tensors nor reductions; the collectives are functions of
// a Transport (ring.h).
//
// Ranks are connected pair by pair, each pair by the fastest way it has. A pair always has a
// control connection (control_link.h), and a channel for its data (channel.h). One thread does
// everything: it moves what can be moved on all pairs, and where nothing can, sleeps in one poll()
// on all control connections, all busy channels and its own doorbell. So a rank that dies, wherever
// it is in the ring, wakes all ranks at once.
//
// It waits; the rest is done by its four parts: PeerStreams queues and moves bytes, Mailbox makes
// messages of them, FailureDetector deals with ranks that leave, fail or are missed,
// SharedMemoryPeers with boards, doorbells and segments. Who has a Transport speaks to them
// himself.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ringgrad/distributed/transport/mailbox.h"
#include "ringgrad/distributed/transport/shared_memory_peers.h"

namespace ringgrad {

// How one pair is connected.
struct Link {
  FileDescriptor control;
  std::unique_ptr<Channel> data;
};

// Thread-safety: none; a group lets one thread at a time use its transport. Only interrupt(),
// ring(), and the mailbox's post() and under_way() are for all.
//
// Errors: every function may throw DistributedError (a rank ended or gave up), OutOfStepError or
// TimeoutError. The group is then dead for good: the stream may have stopped in the middle of a
// message.
class Transport {
 public:
  // links[r] leads to rank r; this rank's own entry is unused. `ranks_here`: how many ranks, this
  // one included, are on this machine. Hands its part of the shared memory to its local peers;
  // complete() must follow on every rank.
  Transport(int rank, std::vector<Link> links, int ranks_here, Deadline deadline);
  ~Transport();
  Transport(const Transport&) = delete;

  // Completes the channels, and receives the parts of the local peers.
  void complete(Deadline deadline);

  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }

  // What it queues moves while this rank waits.
  PeerStreams& streams() { return streams_; }
  // Letters travel while some thread waits in a collective or in move_letters_until(). Each is told
  // of its end, unless an exception ends them all: who catches it calls fail_all().
  Mailbox& mailbox() { return mailbox_; }
  // While no collective runs, an idle thread polls the descriptors that ranks().watch() adds
  // (without holding the transport), and calls attend() when one is ready: it answers ranks that
  // ask for this one, and throws when the group has failed.
  FailureDetector& ranks() { return ranks_; }

  // Moves what fits of what is queued for `peer`, without waiting.
  void push(int peer);
  // Returns when the transfer is complete, which earlier ones of its peer and direction then are,
  // too. Moves the bytes of all transfers meanwhile. Throws TimeoutError, naming who is missing,
  // after a timeout in which nothing moved; ten of them, while a rank of this machine has no core
  // most of the time.
  void wait(const Transfer& transfer);

  // Messages of collectives, each a frame and a payload: returns the frame of the next one that
  // `peer` sends, and receives its payload, of as many bytes as the frame says. Between the two
  // nothing else may be received from `peer`.
  Frame await_message(int peer);
  void receive_payload(int peer, const Frame& frame, std::span<std::byte> payload);

  void move_letters_until(const std::function<bool()>& done);
  // Makes the thread that waits look again whether it is done. From any thread.
  void ring() noexcept;

  // Marks the begin of a collective, which are numbered by their frames' sequence from 1 on;
  // ranks().leave_collective() marks its end. A rank that waits in the same collective and has
  // another frame for it throws OutOfStepError, within half a second at the latest, where there is
  // a core for every rank.
  void enter(const Frame& frame, std::shared_ptr<const std::string> about = {});

  // Where all ranks of the group share memory, they can do more than send bytes: read each other's
  // (shared_all_reduce.h).
  bool shares_memory() const {
    return std::count(local_.begin(), local_.end(), true) + 1 == size();
  }
  // Between the ranks that do:
  SharedMemoryPeers& memory() { return memory_; }
  // Returns once done(), which other ranks' boards must bring about. Throws as wait() does.
  void wait_until(const std::function<bool()>& done);
  // Collective of those ranks: each contributes `bytes` zeros.
  SharedSegment share(size_t bytes);

  // Gives the group up as ranks().abort() does, from any thread: the one that waits, or waits next,
  // does it.
  void interrupt(const Failure& failure) noexcept;

  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  // Whether waits may burn cycles for a few microseconds before they sleep; off where other threads
  // want the core.
  void set_spinning(bool on) { spinning_ = on; }

 private:
  // Whom a wait needs: who streams_ say, all local ranks, or whom letters need, whose timeouts
  // count then.
  enum class For : uint8_t { Bytes, Boards, Letters };
  template <class Done>
  void block_until(const Done& done, For what);
  bool progress();
  void check_left(For what);
  std::chrono::milliseconds grow_impatient(std::chrono::nanoseconds silent, For what);
  std::chrono::nanoseconds sleep(std::chrono::nanoseconds longest);

  const std::vector<bool> local_;  // by rank: whether it shares this one's memory
  FailureDetector ranks_;
  PeerStreams streams_;
  Mailbox mailbox_;
  FileDescriptor doorbell_;  // an eventfd: wakes this rank
  SharedMemoryPeers memory_;
  const int ranks_here_;
  int crowding_ = 1;  // ranks here that share a core
  std::chrono::milliseconds timeout_ = std::chrono::seconds(60);
  bool spinning_ = true;
  std::vector<pollfd> polled_;  // by sleep(): kept for its memory
};

}  // namespace ringgrad
