// FailureDetector: who has left, who has failed, who is missed, and who is to blame. It listens and
// speaks on this rank's control connections (control_link.h), one to every other rank.
//
// A group fails as a whole. The rank that notices first tells all others, and each throws the same
// words; so the first cause reaches every rank, and not what follows from it. A process that dies
// says nothing: the kernel closes its connections, and an end without a goodbye is a death. Silence
// alone is no failure, until the deadline: then every rank is asked where it is.
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

// What a rank is doing, for other ranks that miss it.
struct Position {
  // The frame of the collective it has entered last; its sequence is 0 before the first one.
  Frame frame;
  // It is in that collective still.
  bool inside = false;
  // Words for the collective: names of parameters.
  std::shared_ptr<const std::string> about;
};
std::string describe(const Position& position);

// Thread-safety: as Transport's, whose part it is; interrupt() is for all threads.
class FailureDetector {
 public:
  // controls[r] leads to rank r; this rank's own entry is unused.
  FailureDetector(int rank, std::vector<FileDescriptor> controls);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  const Position& position() const { return position_; }
  void set_position(Position position) { position_ = std::move(position); }
  void leave_collective() { position_.inside = false; }

  // Gives the group up: tells all ranks why. Only the first failure counts.
  void abort(const Failure& failure) noexcept;
  // The same, and throws the first failure.
  [[noreturn]] void fail(Failure failure);
  // The same from any thread: this rank's next check_interrupt() does it. The caller wakes this
  // rank.
  void interrupt(const Failure& failure) noexcept;
  const std::optional<Failure>& failure() const { return failure_; }
  void check_failure() const;  // throws it, if there is one
  void check_interrupt();      // and what interrupt() has asked for
  // Leaves the group, in good order unless it was interrupted or an exception is what ends the
  // transport.
  void say_goodbye() noexcept;

  // Hears what has arrived, and answers ranks that ask for this one. Throws when the group has
  // failed.
  void attend();
  // Adds what to poll for attend().
  void watch(std::vector<pollfd>& descriptors) const;

  bool has_left(int rank) const { return peers_[rank].left; }
  [[noreturn]] void fail_because_left(int rank);
  // The data stream to `rank` has ended: throws for the reason that the control connections tell,
  // or for that alone.
  [[noreturn]] void fail_because_broken(int rank, const std::string& how);
  // Throws OutOfStepError unless `rank`'s frame of the collective in which both are agrees with
  // this rank's.
  void compare(const Frame& theirs, int rank);

  // Nothing has moved for long. Sleep: waits so many milliseconds at most, and attends.
  using Sleep = std::function<void(std::chrono::milliseconds)>;
  void ask_for_positions();
  // Whether a rank of this machine could have run since then, and had no core for most of the time:
  // it is late, and not to blame. What is not known to the kernel as a process of this machine
  // counts as not starved.
  bool is_one_starved() const;
  std::string who_is_missing(const PeerStreams& streams, const Sleep& sleep);
  [[noreturn]] void time_out(std::chrono::milliseconds timeout, const PeerStreams& streams,
                             const Sleep& sleep);

 private:
  friend struct PairsApart;
  struct Peer {
    explicit Peer(FileDescriptor socket);
    ControlLink control;
    pid_t process = 0;                        // 0: not known, as over TCP; or this one
    std::chrono::nanoseconds without_core{};  // of the process, when it was asked for its position
    bool left = false;                        // said goodbye
    std::optional<std::string> position;      // its answer to the last query
    std::optional<uint64_t> entered;          // the same: which collective
    std::string misses;                       // the same: " 1 3 " have not answered it
    bool missed = false;                      // it was asked, and has not answered
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
  std::optional<Failure> interruption_;
  std::atomic<bool> interrupted_ = false;
  std::chrono::steady_clock::time_point asked_;  // for positions
  const int exceptions_at_birth_;
};

// Pairs of ranks that do not reach each other, while a third one reaches both: "; rank 1 and rank 2
// do not reach each other; both reach rank 0". Set before main by blame/pairs_apart.cpp; nullptr in
// a program without.
using FindPairs = std::string (*)(const FailureDetector& ranks);
inline constinit FindPairs pairs_apart = nullptr;

}  // namespace ringgrad
