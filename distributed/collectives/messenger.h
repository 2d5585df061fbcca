// The messages of one collective, as one rank exchanges them: each is a frame (frame.h) and a
// payload.
#pragma once

#include <deque>
#include <vector>

#include "ringgrad/distributed/process_group.h"
#include "ringgrad/distributed/transport/transport.h"

namespace ringgrad {

// Returns true if messages over this kind of channel carry a checksum.
bool needs_checksum(Checksums which, const ChannelKind& kind);

class Messenger {
 public:
  // `frame` says what this rank is doing. `checksums` says which payloads it sends with a checksum;
  // payloads that come with one are always checked. If there are `members`, only they take part,
  // this rank among them, and they are numbered 0, 1, … here. `on_send`, which may be empty, must
  // outlive this object.
  Messenger(Transport& transport, const Frame& frame, Checksums checksums = Checksums::Auto,
            std::vector<int> members = {}, const SendObserver& on_send = kNobody);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }

  // See Transport; the same on all members.
  double& bytes_under_way() { return transport_.bytes_under_way(members_); }

  // Queues a message to a member. The payload must not change until wait() for it, or finish().
  Transfer send(int member, std::span<const std::byte> payload);

  // Waits for the next message from a member, and receives its payload in place. Before the payload
  // is touched the header is checked: throws OutOfStepError, naming both sides, when the peer is
  // doing something else. Throws DistributedError, naming the link, when a bit of the message was
  // flipped on its way.
  void recv(int member, std::span<std::byte> payload);

  void wait(const Transfer& sent) { transport_.wait(sent); }
  // Returns when everything has been sent.
  void finish();

 private:
  struct Peer {
    // messages
    uint32_t sent = 0;
    uint32_t received = 0;
    Transfer last;
  };

  inline static const SendObserver kNobody;

  Transport& transport_;
  Frame frame_;
  Checksums checksums_;
  std::vector<int> members_;
  const SendObserver& on_send_;
  int rank_;
  std::vector<Peer> peers_;
  std::deque<FrameBytes> headers_;  // must live until they are sent
};

}  // namespace ringgrad
