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
// It waits; the rest is done by its parts: PeerStreams queues and moves bytes, FailureDetector
// deals with ranks that leave, fail or are missed, LocalPeers with what ranks of a machine have
// more, Sorter with messages that are for no collective. Who has a Transport speaks to them
// himself.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ringgrad/distributed/transport/local_peers.h"

namespace ringgrad {

// How one pair is connected.
struct Link {
  FileDescriptor control;
  std::unique_ptr<Channel> data;
};

// Sorts the messages that come, where not all of them are for collectives
// (point_to_point/message_matcher.h).
class Sorter {
 public:
  virtual ~Sorter() = default;

  // A collective waits for the next message from `peer`, or for none (-1).
  virtual void want(int peer) = 0;
  // The frame of the one that is there, or nullptr.
  virtual const Frame* message(int peer) const = 0;
  // Where its payload has been read already: copies it. Else false, and the caller receives it from
  // the stream.
  virtual bool take(int peer, std::span<std::byte> payload) = 0;

  // Move bytes, and never wait; false: there was nothing to do. Throw ChannelClosed, and what
  // decode_from() and check_payload() do.
  virtual bool progress() = 0;
  virtual bool read_from(int peer) = 0;
  // The stream of `peer` has ended: true where nobody needs more of it.
  virtual bool may_end(int peer) = 0;
};
// Set before main by the file that implements it; nullptr in a program without.
class Transport;
using MakeSorter = std::unique_ptr<Sorter> (*)(Transport&);
inline constinit MakeSorter make_sorter = nullptr;

// Thread-safety: none; a group lets one thread at a time use its transport. Only interrupt() and
// ring() are for all.
//
// Errors: every function may throw DistributedError (a rank ended or gave up), OutOfStepError or
// TimeoutError. The group is then dead for good: the stream may have stopped in the middle of a
// message.
class Transport {
 public:
  // links[r] leads to rank r; this rank's own entry is unused. `ranks_here`: how many ranks, this
  // one included, are on this machine. complete() must follow on every rank.
  Transport(int rank, std::vector<Link> links, int ranks_here, Deadline deadline);
  ~Transport();
  Transport(const Transport&) = delete;

  void complete(Deadline deadline);

  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }

  // What it queues moves while this rank waits.
  PeerStreams& streams() { return streams_; }
  Sorter* sorter() { return sorter_.get(); }
  LocalPeers* local_peers() { return local_.get(); }
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
  // Throw DistributedError, naming the link, where the message is not what the sender sent.
  Frame decode_from(int peer, const FrameBytes& header) const;
  void check_payload(int peer, const Frame& frame, std::span<const std::byte> payload) const;

  // Returns once done(), which the sorter or the local peers must bring about. Throws as wait()
  // does; `timeout`, if there is one, says after how long.
  using Timeout = std::function<std::chrono::milliseconds()>;
  void wait_until(const std::function<bool()>& done, const Timeout& timeout = {});
  // Makes the thread that waits look again whether it is done. From any thread.
  void ring() noexcept;

  // Marks the begin of a collective, which are numbered by their frames' sequence from 1 on;
  // ranks().leave_collective() marks its end. A rank that waits in the same collective and has
  // another frame for it throws OutOfStepError, within half a second at the latest, where there is
  // a core for every rank.
  void enter(const Frame& frame, std::shared_ptr<const std::string> about = {});

  // Gives the group up as ranks().abort() does, from any thread: the one that waits, or waits next,
  // does it.
  void interrupt(const Failure& failure) noexcept;

  std::chrono::milliseconds timeout() const { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  // Whether waits may burn cycles for a few microseconds before they sleep; off where other threads
  // want the core.
  void set_spinning(bool on) { spinning_ = on; }

 private:
  template <class Done>
  void block_until(const Done& done, const Timeout& timeout = {});
  std::string link_from(int peer) const;
  bool progress();
  void set_sleeping(bool sleeping);
  std::chrono::milliseconds grow_impatient(std::chrono::nanoseconds silent,
                                           std::chrono::milliseconds timeout);
  std::chrono::nanoseconds sleep(std::chrono::nanoseconds longest);
  void attend();  // to the news that ended the sleep, if any did

  FailureDetector ranks_;
  PeerStreams streams_;
  const std::unique_ptr<Sorter> sorter_;
  FileDescriptor doorbell_;  // an eventfd: wakes this rank
  const std::unique_ptr<LocalPeers> local_;
  const int ranks_here_;
  int crowding_ = 1;  // ranks here that share a core
  std::chrono::milliseconds timeout_ = std::chrono::seconds(60);
  bool spinning_ = true;
  std::vector<pollfd> polled_;  // by sleep(): kept for its memory
  bool has_news_ = false;       // a control connection was ready after sleep()
};

}  // namespace ringgrad
