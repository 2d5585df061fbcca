// FailureDetector: knows which ranks have left, failed or are missing, and which one is to blame.
// It uses this rank's control connections (control_link.h), one to every other rank.
//
// A group fails as a whole. The rank that notices first tells all others, and all throw the same
// words. So every rank reports the first cause, and not a consequence. A process that dies says
// nothing: the kernel closes its connections, and an end without a goodbye means death. Silence is
// no failure until the deadline. Where nothing moves, every rank is asked for its position before.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/distributed/transport/control_link.h"
#include "ringgrad/distributed/transport/frame.h"
#include "ringgrad/distributed/transport/peer_streams.h"

namespace ringgrad {

// A rank's position: the collective that it is in. Ranks that miss this one ask for it.
struct Position {
  // The frame of the collective that it has entered last. The sequence is 0 before the first one.
  Frame frame;
  // The rank is still in that collective.
  bool inside = false;
  // Words for the collective, such as names of parameters.
  std::shared_ptr<const std::string> about;
};
std::string describe(const Position& position);

// Thread-safety: as Transport, which owns it. Any thread may call interrupt().
class FailureDetector {
 public:
  // controls[r] leads to rank r; this rank's own entry is unused.
  FailureDetector(int rank, std::vector<ControlLink> controls);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  const Position& position() const { return position_; }
  void set_position(Position position) { position_ = std::move(position); }
  void leave_collective() { position_.inside = false; }

  // Gives the group up, and tells all ranks why. Only the first failure counts.
  void abort(const Failure& failure) noexcept;
  // Does the same, and throws the first failure.
  [[noreturn]] void fail(Failure failure);
  // Does the same from any thread: this rank's next check_interrupt() gives the group up. The
  // caller must wake this rank.
  void interrupt(const Failure& failure) noexcept;
  const std::optional<Failure>& failure() const { return failure_; }
  void check_failure() const;  // throws the failure, if there is one
  // Does what interrupt() has asked for, unless another rank has given a reason before.
  void check_interrupt();
  // Leaves the group. It does so in good order, unless the group was interrupted or an exception
  // ends the transport.
  void say_goodbye() noexcept;

  // Reads messages that have arrived, and answers ranks that ask for this one. Throws if the group
  // has failed.
  void attend();
  // Adds the descriptors to poll for attend().
  void watch(std::vector<pollfd>& descriptors) const;

  // Called once with the failure that ends the group, to end others that depend on it.
  std::function<void(const Failure&)> on_failure;

  bool has_left(int rank) const { return peers_[rank].left; }
  [[noreturn]] void fail_because_left(int rank);
  // Handles the end of the data stream to `rank`. Throws the reason that the control connections
  // give, or else the end itself.
  [[noreturn]] void fail_because_broken(int rank, const std::string& how);
  // Throws OutOfStepError unless this rank's frame agrees with `rank`'s frame of the same
  // collective.
  void compare(const Frame& theirs, int rank);

  // These are called when nothing has moved for long. Sleep waits at most so many milliseconds, and
  // attends.
  using Sleep = std::function<void(std::chrono::milliseconds)>;
  void ask_for_positions();
  // Returns true if a rank of this machine was ready to run but had no core for most of the time
  // since the last ask_for_positions(). Such a rank is late, and not to blame. A rank that the
  // kernel does not know as a process of this machine counts as not starved.
  bool is_one_starved() const;
  std::string who_is_missing(const PeerStreams& streams, const Sleep& sleep);
  [[noreturn]] void time_out(std::chrono::milliseconds timeout, const PeerStreams& streams,
                             const Sleep& sleep);

 private:
  friend struct PairsApart;
  struct Peer {
    explicit Peer(ControlLink link);
    ControlLink control;
    pid_t process = 0;  // 0: unknown, as over TCP, or this process
    // The process's state when it was asked for its position.
    std::chrono::nanoseconds without_core{};
    bool left = false;                    // it has said goodbye
    std::optional<std::string> position;  // the words in its answer to the last query
    std::optional<uint64_t> entered;      // the number of the collective in that answer
    std::string misses;                   // the ranks that have not answered it: " 1 3 "
    bool missed = false;                  // it was asked, and has not answered
  };

  void tell_all(const ControlMessage& message) noexcept;
  void answer(ControlMessage message, int rank);
  void hear(const ControlMessage& position, int rank);
  void call_roll(const Sleep& sleep);

  const int rank_;
  std::deque<Peer> peers_;  // by rank
  Position position_;
  std::optional<Failure> failure_;
  std::mutex interrupt_mutex_;
  std::optional<Failure> interruption_;          // never changes once there is one
  std::atomic<bool> interrupted_ = false;        // is set after it
  std::chrono::steady_clock::time_point asked_;  // for the answers to queries
  const int exceptions_at_birth_;
};

// Returns the pairs of ranks that do not reach each other, while a third one reaches both. An
// example is "; rank 1 and rank 2 do not reach each other; both reach rank 0".
// blame/pairs_apart.cpp sets this before main; it is nullptr in a program without that file.
using FindPairs = std::string (*)(const FailureDetector& ranks);
inline constinit FindPairs pairs_apart = nullptr;

}  // namespace ringgrad
