// Transport: ordered, reliable bytes between the ranks of a group. Anything that has one is a rank: a process, or a
// thread. It knows neither tensors nor reductions; the collectives are functions of a Transport (ring.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "distributed/failure.h"
#include "distributed/frame.h"

struct pollfd;

namespace ringgrad {

class SharedDomain;

// A send or a receive under way.
struct Transfer {
  int peer = -1;
  bool outgoing = false;
  uint64_t number = 0;
};

// What a rank is doing, for other ranks that miss it.
struct Position {
  Frame frame;          // of the collective it has entered last; its sequence is 0 before the first one
  bool inside = false;  // it is in that collective still
  std::shared_ptr<const std::string> about;  // what the collective is about: names of parameters
};
std::string describe(const Position& position);

// Thread-safety: none; a group lets one thread at a time use its transport. Only interrupt() is for all.
//
// Errors: every function may throw DistributedError (a rank ended or gave up), OutOfStepError or TimeoutError. The
// group is then dead for good: the stream may have stopped in the middle of a message.
class Transport {
 public:
  Transport(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Queues bytes for `peer`, to be sent while this rank waits. They must stay as they are until wait() returned.
  virtual Transfer send(int peer, std::span<const std::byte> bytes) = 0;
  // Queues a receive of exactly so many bytes from `peer`.
  virtual Transfer recv(int peer, std::span<std::byte> bytes) = 0;
  // Returns when the transfer is complete, which earlier ones of its peer and direction then are, too. Moves the bytes
  // of all transfers meanwhile. Throws TimeoutError, naming who is missing, after timeout() in which nothing moved.
  virtual void wait(const Transfer& transfer) = 0;

  // Marks the begin and the end of a collective, which are numbered by their frames' sequence from 1 on. A rank that
  // waits in the same collective and has another frame for it throws OutOfStepError, within half a second at the
  // latest.
  virtual void enter(const Frame& frame, std::shared_ptr<const std::string> about = {}) = 0;
  void leave() { position_.inside = false; }
  const Position& position() const { return position_; }

  virtual const char* channel(int peer) const = 0;  // how bytes reach it: "tcp", "shm"

  // The memory that all ranks of the group share, or nullptr where they do not all share some.
  virtual SharedDomain* shared() = 0;

  // Gives the group up: tells all ranks why, and fails every later call with the same words.
  virtual void abort(const Failure& failure) noexcept = 0;
  // The same, from any thread: whoever waits, or waits next, does it.
  virtual void interrupt(const Failure& failure) noexcept = 0;

  // While no collective runs, an idle thread polls the descriptors that watch() adds (without holding the transport),
  // and calls attend() when one is ready: it answers ranks that ask for this one, and throws when the group has failed.
  virtual void watch(std::vector<pollfd>& descriptors) const = 0;
  virtual void attend() = 0;

  std::chrono::milliseconds timeout() const { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  // Whether waits may burn cycles for a few microseconds before they sleep; off where other threads want the core.
  void set_spinning(bool on) { spinning_ = on; }

 protected:
  bool spinning() const { return spinning_; }
  Position position_;

 private:
  int rank_, size_;
  std::chrono::milliseconds timeout_ = std::chrono::seconds(60);
  bool spinning_ = true;
};

}  // namespace ringgrad
