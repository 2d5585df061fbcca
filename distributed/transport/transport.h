// Transport: ordered, reliable bytes between the ranks of a group. Anything that has one is a rank: a process, or a
// thread. It knows neither tensors nor reductions; the collectives are functions of a Transport (ring.h).
//
// Ranks are connected pair by pair, each pair by the fastest way it has. A pair always has a control connection
// (control_link.h). Its data goes through a TCP connection where the link has one, else through two queues in shared
// memory. One thread does everything: it moves what can be moved on all pairs, and where nothing can, sleeps in one
// poll() on all control connections, all busy sockets and its own doorbell. So a rank that dies, wherever it is in the
// ring, wakes all ranks at once.
//
// transport.cpp moves bytes, waits and shares segments, transport_control.cpp deals with ranks that leave, fail or are
// missed, transport_memory.cpp with boards, queues and doorbells.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/distributed/failure.h"
#include "ringgrad/distributed/transport/board.h"
#include "ringgrad/distributed/transport/channel.h"
#include "ringgrad/distributed/transport/control_link.h"
#include "ringgrad/distributed/transport/frame.h"

namespace ringgrad {

// How one pair is connected. Without `data` the pair shares memory, and `control` is a Unix socket.
struct Link {
  FileDescriptor control;
  FileDescriptor data;
};

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
  // links[r] leads to rank r; this rank's own entry is unused. `ranks_here`: how many ranks, this one included, are on
  // this machine. Hands its part of the shared memory to its local peers; complete() must follow on every rank.
  Transport(int rank, std::vector<Link> links, int ranks_here, Deadline deadline);
  ~Transport();
  Transport(const Transport&) = delete;

  // Receives the parts of the local peers.
  void complete(Deadline deadline);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  // Queues bytes for `peer`, to be sent while this rank waits. They must stay as they are until wait() returned.
  Transfer send(int peer, std::span<const std::byte> bytes);
  // Queues a receive of exactly so many bytes from `peer`.
  Transfer recv(int peer, std::span<std::byte> bytes);
  // Returns when the transfer is complete, which earlier ones of its peer and direction then are, too. Moves the bytes
  // of all transfers meanwhile. Throws TimeoutError, naming who is missing, after timeout() in which nothing moved.
  void wait(const Transfer& transfer);

  // Marks the begin and the end of a collective, which are numbered by their frames' sequence from 1 on. A rank that
  // waits in the same collective and has another frame for it throws OutOfStepError, within half a second at the
  // latest.
  void enter(const Frame& frame, std::shared_ptr<const std::string> about = {});
  void leave() { position_.inside = false; }
  const Position& position() const { return position_; }

  const char* channel(int peer) const { return peers_[peer].channel->name(); }  // how bytes reach it: "tcp", "shm"

  // Where all ranks of the group share memory, they can do more than send bytes: read each other's
  // (shared_all_reduce.h).
  bool shares_memory() const { return all_local_; }
  // What follows REQUIRES shares_memory().
  Board& board(int rank);
  std::byte* staging(int rank);
  // Wakes every rank that sleeps; to be called after a change in this rank's own board.
  void ring_bells();
  // Returns once done(), which other ranks' boards must bring about. Throws as wait() does.
  void wait_until(const std::function<bool()>& done);
  // Throws OutOfStepError unless every rank has entered the same collective as this one, with the same frame.
  void check_entered();
  // Collective: every rank contributes `bytes` zeros.
  SharedSegment share(size_t bytes);

  // Gives the group up: tells all ranks why, and fails every later call with the same words.
  void abort(const Failure& failure) noexcept;
  // The same, from any thread: whoever waits, or waits next, does it.
  void interrupt(const Failure& failure) noexcept;

  // While no collective runs, an idle thread polls the descriptors that watch() adds (without holding the transport),
  // and calls attend() when one is ready: it answers ranks that ask for this one, and throws when the group has failed.
  void watch(std::vector<pollfd>& descriptors) const;
  void attend();

  std::chrono::milliseconds timeout() const { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  // Whether waits may burn cycles for a few microseconds before they sleep; off where other threads want the core.
  void set_spinning(bool on) { spinning_ = on; }

 private:
  struct Pending {
    std::byte* data;
    size_t left;
  };
  struct Queue {  // transfers of one peer and direction, in order
    std::deque<Pending> pending;
    uint64_t issued = 0, done = 0;
  };
  struct Peer {
    explicit Peer(Link link) : control(std::move(link.control)), data(std::move(link.data)) {}
    ControlLink control;
    FileDescriptor data;  // until its channel takes it over
    std::unique_ptr<Channel> channel;
    Queue sends, recvs;
    bool left = false;                       // said goodbye
    std::deque<FileDescriptor> descriptors;  // passed by this peer, in order
    std::optional<std::string> position;     // its answer to the last query
    std::optional<uint64_t> entered;         // the same: which collective
    std::shared_ptr<SharedMemory> memory;    // its board, queues and staging area
    FileDescriptor doorbell;                 // wakes it
  };

  // moving and waiting
  template <class Done>
  void block_until(const Done& done, bool needs_all);
  bool progress();
  bool push(int rank, Peer& peer);
  bool pull(int rank, Peer& peer);
  void sleep(int milliseconds);

  // control
  void tell_all(const ControlMessage& message) noexcept;
  void answer(ControlMessage message, int rank);
  void hear(const ControlMessage& position, int rank);
  void compare(const Frame& theirs, int rank);
  [[noreturn]] void fail(Failure failure);
  [[noreturn]] void lost(int rank, const std::string& how);
  [[noreturn]] void timed_out();
  std::string who_is_missing();
  void check_left(bool needs_all);
  Failure left(int rank) const;
  void check_interrupt();

  // shared memory
  bool local(const Peer& peer) const { return !peer.data && peer.control.descriptor() >= 0; }
  std::byte* memory_of(int rank) const;
  void pass(int rank, int descriptor, Deadline deadline);
  void await_descriptors(int rank, Deadline deadline);
  void ring_bell(int rank);
  void show_position();
  void compare_board(int rank, uint64_t sequence);
  void compare_boards();

  const int rank_;
  std::deque<Peer> peers_;  // by rank
  Position position_;
  std::chrono::milliseconds timeout_ = std::chrono::seconds(60);
  bool spinning_ = true;
  std::shared_ptr<SharedMemory> memory_;
  FileDescriptor doorbell_;
  const int ranks_here_;
  bool any_local_ = false, all_local_ = true, roomy_ = false;
  uint64_t segments_ = 0;
  std::vector<pollfd> polled_;
  std::optional<Failure> failure_;
  std::mutex interrupt_mutex_;
  std::optional<Failure> interruption_;
  std::atomic<bool> interrupted_ = false;
  const int exceptions_at_birth_;
};

}  // namespace ringgrad
