// Transport: ordered, reliable bytes between the ranks of a group. A process or a thread that has a
// Transport is a rank. A Transport knows neither tensors nor reductions; the collectives are
// functions of a Messenger, which has one (collectives/messenger.h).
//
// Ranks are connected in pairs, each pair by the fastest way it has. A pair always has a control
// connection (control_link.h) and a channel for its data (channel.h). One thread does everything.
// It moves the bytes that can be moved on all pairs. If there are none, it sleeps in one poll() on
// all control connections, all busy channels and its own doorbell. So a rank that dies, wherever it
// is in the ring, wakes all ranks at once.
//
// Transport waits; its parts do the rest. PeerStreams queues and moves bytes. FailureDetector
// handles ranks that leave, fail or are missing. LocalPeers holds what ranks of one machine share.
// Sorter handles messages that are for no collective. Users of a Transport may call its parts
// directly.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ringgrad/distributed/transport/local_peers.h"

namespace ringgrad {

// Returns an eventfd, which wakes a thread that waits in poll().
FileDescriptor new_doorbell();

// The connection of one pair of ranks.
struct Link {
  ControlLink control;
  std::unique_ptr<Channel> data;
};

// Sorts incoming messages if some of them are not for collectives
// (point_to_point/message_matcher.h).
class Sorter {
 public:
  virtual ~Sorter() = default;

  // Says that a collective waits for the next message from `peer`, or from no rank (-1).
  virtual void want(int peer) = 0;
  // Returns the frame of that message if it has arrived, or nullptr.
  virtual const Frame* message(int peer) const = 0;
  // Copies the payload and returns true if it has been read already. Else returns false, and the
  // caller must read it from the stream.
  virtual bool take(int peer, std::span<std::byte> payload) = 0;

  // These move bytes and never wait. They return false if there was nothing to do. They throw
  // ChannelClosed, and what decode_from() and check_payload() throw.
  virtual bool progress() = 0;
  virtual bool read_from(int peer) = 0;
  // Called when the stream of `peer` has ended. Returns true if no more of it is needed.
  virtual bool may_end(int peer) = 0;
};
// The file that implements it sets it before main; it is nullptr in a program without that file.
class Transport;
using MakeSorter = std::unique_ptr<Sorter> (*)(Transport&);
inline constinit MakeSorter make_sorter = nullptr;

// Thread-safety: none; a group lets one thread at a time use its transport. Any thread may call
// interrupt() and ring().
//
// Errors: every function may throw DistributedError (a rank ended or gave up), OutOfStepError or
// TimeoutError. The group is then dead for good: the stream may have stopped in the middle of a
// message.
class Transport {
 public:
  // links[r] leads to rank r; this rank's own entry is unused. `ranks_here` is the number of ranks
  // on this machine, this one included. complete() must follow on every rank.
  Transport(int rank, std::vector<Link> links, int ranks_here, Deadline deadline);
  ~Transport();
  Transport(const Transport&) = delete;

  void complete(Deadline deadline);

  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }

  // Queued transfers move while this rank waits.
  PeerStreams& streams() { return streams_; }
  Sorter* sorter() { return sorter_.get(); }
  LocalPeers* local_peers() { return local_.get(); }
  // While no collective runs, an idle thread polls the descriptors of ranks().watch(), without
  // holding the transport. When one is ready it calls attend(), which answers ranks that ask for
  // this one, and throws if the group has failed.
  FailureDetector& ranks() { return ranks_; }

  // Moves the queued bytes for `peer` that fit, without waiting.
  void push(int peer);
  // Returns when the transfer is complete; earlier ones of its peer and direction are complete
  // then, too. Moves the bytes of all transfers meanwhile. Throws TimeoutError, which names the
  // missing rank, after a timeout in which nothing moved. The timeout is ten times as long while a
  // rank of this machine has no core most of the time.
  void wait(const Transfer& transfer);

  // A message of a collective is a frame and a payload. await_message() returns the frame of the
  // next message from `peer`; receive_payload() receives its payload, of as many bytes as the frame
  // says. Nothing else may be received from `peer` between the two.
  Frame await_message(int peer);
  void receive_payload(int peer, const Frame& frame, std::span<std::byte> payload);
  // Throw DistributedError, which names the link, if the message is not what the sender sent.
  Frame decode_from(int peer, const FrameBytes& header) const;
  void check_payload(int peer, const Frame& frame, std::span<const std::byte> payload) const;

  // Returns once done() is true; the sorter or the local peers must make it true. Throws as wait()
  // does. `timeout`, if there is one, replaces the usual timeout.
  using Timeout = std::function<std::chrono::milliseconds()>;
  void wait_until(const std::function<bool()>& done, const Timeout& timeout = {});
  // Makes the waiting thread check again whether it is done. Any thread may call it.
  void ring() noexcept;

  // Marks the start of a collective; ranks().leave_collective() marks its end. The frame's sequence
  // numbers a group's collectives from 1 on. A rank that waits in the same collective with another
  // frame throws OutOfStepError, within half a second if there is a core for every rank.
  void enter(const Frame& frame, std::shared_ptr<const std::string> about = {});

  // Gives the group up as ranks().abort() does, from any thread. The thread that waits, or waits
  // next, does it.
  void interrupt(const Failure& failure) noexcept;

  // The bytes that these ranks' slowest link carries during its latency; negative: not measured.
  double& bytes_under_way(const std::vector<int>& ranks) {
    return bytes_under_way_.try_emplace(ranks, -1).first->second;
  }

  std::chrono::milliseconds timeout() const { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  // Sets whether a wait may spin for a few microseconds before it sleeps. It is off if other
  // threads want the core.
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
  void attend();  // reads the message that ended the sleep, if one did

  FailureDetector ranks_;
  PeerStreams streams_;
  const std::unique_ptr<Sorter> sorter_;
  FileDescriptor doorbell_;  // an eventfd that wakes this rank
  const std::unique_ptr<LocalPeers> local_;
  const int ranks_here_;
  int crowding_ = 1;  // the number of ranks here that share a core
  std::chrono::milliseconds timeout_ = std::chrono::seconds(60);
  bool spinning_ = true;
  std::map<std::vector<int>, double> bytes_under_way_;
  std::vector<pollfd> polled_;  // for sleep(), which reuses its memory
  bool has_news_ = false;       // a control connection was ready after sleep()
};

}  // namespace ringgrad
