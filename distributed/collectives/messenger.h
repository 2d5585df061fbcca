// The messages of one collective, as one rank exchanges them: each is a frame (frame.h) and a payload.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "ringgrad/distributed/transport/transport.h"

namespace ringgrad {

// Sees the payload of every message that a rank sends, at the moment when it is queued: for who wants to watch.
using SendObserver = std::function<void(int peer, std::span<const std::byte> payload)>;

class Messenger {
 public:
  // `frame` says what this rank is doing. With `checksums` payloads carry a CRC-32, too. `on_send`, which may be empty,
  // must outlive this.
  Messenger(Transport& transport, const Frame& frame, bool checksums = false, const SendObserver& on_send = kNobody);

  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }

  // Queues a message to `peer`. The payload must stay as it is until wait() for it, or finish().
  Transfer send(int peer, std::span<const std::byte> payload);

  // Waits for the next message from `peer`, and receives its payload in place. Before the payload is touched the header
  // is checked: throws OutOfStepError, naming both sides, when the peer is doing something else.
  void recv(int peer, std::span<std::byte> payload);

  void wait(const Transfer& sent) { transport_.wait(sent); }
  // Returns when everything has been sent.
  void finish();

 private:
  struct Peer {
    uint32_t sent = 0, received = 0;  // messages
    Transfer last;
  };

  inline static const SendObserver kNobody;

  Transport& transport_;
  Frame frame_;
  bool checksums_;
  const SendObserver& on_send_;
  std::vector<Peer> peers_;
  std::deque<FrameBytes> headers_;  // must live until they are sent
};

}  // namespace ringgrad
