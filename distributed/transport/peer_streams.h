// PeerStreams: the bytes between this rank and all others, as queues of transfers over one Channel
// to each rank. It moves the bytes that can be moved, and never waits. Transport adds waiting.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ringgrad/distributed/transport/channel.h"

namespace ringgrad {

// A queued send or receive.
struct Transfer {
  int peer = -1;
  bool outgoing = false;
  uint64_t number = 0;  // the number among transfers of this peer and direction, from 1 on
};

// The messages that this rank expects from a peer, beside the receives that it has queued.
enum class Expect : uint8_t {
  Nothing,
  Anything,  // it reads any message, but calls none missing
  Message,   // it waits for a message
};

class PeerStreams {
 public:
  // channels[r] leads to rank r; this rank's own entry is empty.
  explicit PeerStreams(std::vector<std::unique_ptr<Channel>> channels) {
    for (auto& channel : channels) peers_.push_back({std::move(channel)});
  }

  Channel& channel(int peer) const { return *peers_[peer].channel; }

  // Queue a send of bytes, which must not change until the transfer is done, or a receive of
  // exactly so many bytes.
  Transfer send(int peer, std::span<const std::byte> bytes);
  Transfer recv(int peer, std::span<std::byte> bytes);
  bool done(const Transfer& transfer) const;

  bool sending(int peer) const { return !peers_[peer].sends.pending.empty(); }
  bool transfers_from(int peer) const { return !peers_[peer].recvs.pending.empty(); }
  bool receiving(int peer) const {
    return transfers_from(peer) || expected(peer) == Expect::Message;
  }
  // Move bytes of queued transfers. Return false if the channel took or gave nothing. Throw
  // ChannelClosed.
  bool push(int peer);
  bool pull(int peer);
  // Fills the front of `bytes`, and returns the number of bytes. REQUIRES: no receive is queued.
  // Throws ChannelClosed.
  size_t read(int peer, std::span<std::byte> bytes) { return peers_[peer].channel->read(bytes); }
  // Sets a function that says what this rank expects from each peer beside its queued receives. It
  // must be valid as long as this object.
  void set_expected(std::function<Expect(int peer)> expected) { expected_ = std::move(expected); }

  // Adds the descriptors to poll for queued transfers and expected messages. Channels in shared
  // memory have none: their peers ring the doorbell.
  void watch(std::vector<pollfd>& descriptors) const;

 private:
  struct Queue {                               // the transfers of one peer and direction, in order
    std::deque<std::span<std::byte>> pending;  // what is left of each
    uint64_t issued = 0;
    uint64_t done = 0;
  };
  struct Peer {
    std::unique_ptr<Channel> channel;
    Queue sends = {};
    Queue recvs = {};
  };

  Expect expected(int peer) const { return expected_ ? expected_(peer) : Expect::Nothing; }

  std::vector<Peer> peers_;  // by rank
  std::function<Expect(int peer)> expected_;
};

}  // namespace ringgrad
