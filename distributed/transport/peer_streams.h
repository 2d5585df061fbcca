// PeerStreams: the bytes between this rank and all others, as queues of transfers over one Channel
// to each. Moves what can be moved, and never waits; Transport makes waiting out of it.
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

// A send or a receive under way.
struct Transfer {
  int peer = -1;
  bool outgoing = false;
  uint64_t number = 0;  // among those of this peer and direction, from 1 on
};

// What a rank hopes to read from a peer, beside the receives that it has queued.
enum class Expect : uint8_t {
  Nothing,
  Anything,  // it reads whatever comes, and misses nothing
  Message,   // it waits for one
};

class PeerStreams {
 public:
  // channels[r] leads to rank r; this rank's own entry is empty.
  explicit PeerStreams(std::vector<std::unique_ptr<Channel>> channels) {
    for (auto& channel : channels) peers_.push_back({std::move(channel)});
  }

  Channel& channel(int peer) const { return *peers_[peer].channel; }

  // Queues bytes, which must stay as they are until the transfer is done; or room for exactly so
  // many.
  Transfer send(int peer, std::span<const std::byte> bytes);
  Transfer recv(int peer, std::span<std::byte> bytes);
  bool done(const Transfer& transfer) const;

  bool sending(int peer) const { return !peers_[peer].sends.pending.empty(); }
  bool transfers_from(int peer) const { return !peers_[peer].recvs.pending.empty(); }
  bool receiving(int peer) const {
    return transfers_from(peer) || expected(peer) == Expect::Message;
  }
  // Move bytes of queued transfers; false: the channel took or gave nothing. Throw ChannelClosed.
  bool push(int peer);
  bool pull(int peer);
  // Fills the front of `bytes`, and returns how much. REQUIRES: no receive is queued. Throws
  // ChannelClosed.
  size_t read(int peer, std::span<std::byte> bytes) { return peers_[peer].channel->read(bytes); }
  // Who reads beside the receives that are queued says from whom, while it lives.
  void set_expected(std::function<Expect(int peer)> expected) { expected_ = std::move(expected); }

  // Adds what to poll for the transfers that are queued, and for what is expected. Channels in
  // shared memory have nothing: their peers ring.
  void watch(std::vector<pollfd>& descriptors) const;

 private:
  struct Pending {
    std::byte* data;
    size_t left;
  };
  struct Queue {  // transfers of one peer and direction, in order
    std::deque<Pending> pending;
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
