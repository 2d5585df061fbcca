// The Transport of ranks that are connected pair by pair, each pair by the fastest way it has.
//
// A pair always has a control connection (control_link.h). Its data goes through a TCP connection where the link has
// one, else through two queues in shared memory. One thread does everything: it moves what can be moved on all pairs,
// and where nothing can, sleeps in one poll() on all control connections, all busy sockets and its own doorbell. So a
// rank that dies, wherever it is in the ring, wakes all ranks at once.
//
// mesh_transport.cpp moves bytes, waits and shares segments, mesh_control.cpp deals with ranks that leave, fail or are
// missed, mesh_memory.cpp with boards, queues and doorbells.
#pragma once

#include <poll.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>

#include "distributed/channel.h"
#include "distributed/control_link.h"
#include "distributed/deadline.h"
#include "distributed/shared_domain.h"
#include "distributed/transport.h"

namespace ringgrad {

// How one pair is connected. Without `data` the pair shares memory, and `control` is a Unix socket.
struct Link {
  FileDescriptor control;
  FileDescriptor data;
};

class MeshTransport final : public Transport, private SharedDomain {
 public:
  // links[r] leads to rank r; this rank's own entry is unused. `ranks_here`: how many ranks, this one included, are on
  // this machine. Hands its part of the shared memory to its local peers; complete() must follow on every rank.
  MeshTransport(int rank, std::vector<Link> links, int ranks_here, Deadline deadline);
  ~MeshTransport() override;

  // Receives the parts of the local peers.
  void complete(Deadline deadline);

  Transfer send(int peer, std::span<const std::byte> bytes) override;
  Transfer recv(int peer, std::span<std::byte> bytes) override;
  void wait(const Transfer& transfer) override;
  void enter(const Frame& frame, std::shared_ptr<const std::string> about) override;
  const char* channel(int peer) const override { return peers_[peer].channel->name(); }
  SharedDomain* shared() override { return all_local_ ? this : nullptr; }
  void abort(const Failure& failure) noexcept override;
  void interrupt(const Failure& failure) noexcept override;
  void watch(std::vector<pollfd>& descriptors) const override;
  void attend() override;

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
  void block_until(Done done, bool needs_all);
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
  Board& board(int rank) override;
  std::byte* staging(int rank) override;
  void ring_bells() override;
  void wait_until(bool (*done)(void*), void* context) override;
  void check_entered() override;
  SharedSegment share(size_t bytes) override;
  bool local(const Peer& peer) const { return !peer.data && peer.control.descriptor() >= 0; }
  std::byte* memory_of(int rank) const;
  void pass(int rank, int descriptor, Deadline deadline);
  void await_descriptors(int rank, Deadline deadline);
  void ring_bell(int rank);
  void show_position();
  void compare_board(int rank, uint64_t sequence);
  void compare_boards();

  std::deque<Peer> peers_;  // by rank
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
