// The Transport of ranks that are connected pair by pair, each pair by the fastest way it has.
//
// A pair always has a control connection (control_link.h). Its data goes through a TCP connection where the link has
// one, else through two queues in shared memory. One thread does everything: it moves what can be moved on all pairs,
// and where nothing can, sleeps in one poll() on all control connections, all busy sockets and its own doorbell. So a
// rank that dies, wherever it is in the ring, wakes all ranks at once.
#pragma once

#include <poll.h>

#include <deque>
#include <memory>
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
  // links[r] leads to rank r; this rank's own entry is unused. Sends its part of the shared memory to its local peers;
  // complete() must follow on every rank.
  MeshTransport(int rank, std::vector<Link> links);
  ~MeshTransport() override;

  // Receives the parts of the local peers.
  void complete(Deadline deadline);

  Transfer send(int peer, std::span<const std::byte> bytes) override;
  Transfer recv(int peer, std::span<std::byte> bytes) override;
  void wait(const Transfer& transfer) override;
  const char* channel(int peer) const override { return peers_[peer].channel->name(); }
  SharedDomain* shared() override { return all_local_ ? this : nullptr; }
  void abort(const Failure& failure) noexcept override;
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
    ControlLink control;
    FileDescriptor data;  // until its channel takes it over
    std::unique_ptr<Channel> channel;
    Queue sends, recvs;
    bool left = false;                       // said goodbye
    std::deque<FileDescriptor> descriptors;  // passed by this peer, in order
    std::optional<ControlMessage> position;  // its answer to the last query
    std::shared_ptr<SharedMemory> memory;    // its board and queues
    FileDescriptor doorbell;                 // wakes it
  };

  Board& board(int rank) override;
  void ring_bells() override;
  void wait_until(bool (*done)(void*), void* context) override;
  SharedSegment share(size_t bytes) override;

  template <class Done>
  void wait_until(Done done);
  bool progress();
  bool push(int rank, Peer& peer);
  bool pull(int rank, Peer& peer);
  void ring_bell(int rank);
  void sleep(int milliseconds);
  bool local(const Peer& peer) const { return !peer.data && peer.control.descriptor() >= 0; }
  void tell_all(const ControlMessage& message) noexcept;
  void answer(ControlMessage message, int rank);
  [[noreturn]] void fail(Failure failure);
  [[noreturn]] void lost(int rank, const std::string& how);
  [[noreturn]] void timed_out();

  std::deque<Peer> peers_;  // by rank
  std::shared_ptr<SharedMemory> memory_;
  FileDescriptor doorbell_;
  bool any_local_ = false, all_local_ = true, roomy_ = false;
  uint64_t segments_ = 0;
  std::vector<pollfd> polled_;
  std::optional<Failure> failure_;
  const int exceptions_at_birth_;
};

}  // namespace ringgrad
