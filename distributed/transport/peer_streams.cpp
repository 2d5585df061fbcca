#include "ringgrad/distributed/transport/peer_streams.h"

#include <algorithm>

namespace ringgrad {
namespace {

// Several messages, each a header and a payload, leave in one system call.
constexpr size_t kPiecesAtOnce = 8;

}  // namespace

Transfer PeerStreams::send(int peer, std::span<const std::byte> bytes) {
  Queue& queue = peers_[peer].sends;
  queue.pending.emplace_back(const_cast<std::byte*>(bytes.data()), bytes.size());
  return {peer, true, ++queue.issued};
}

Transfer PeerStreams::recv(int peer, std::span<std::byte> bytes) {
  Queue& queue = peers_[peer].recvs;
  queue.pending.push_back(bytes);
  return {peer, false, ++queue.issued};
}

bool PeerStreams::done(const Transfer& transfer) const {
  const Peer& peer = peers_[transfer.peer];
  return (transfer.outgoing ? peer.sends : peer.recvs).done >= transfer.number;
}

// A queue keeps the order of its transfers, so `done >= number` holds for a transfer and all before
// it. One system call may end in the middle of a message; the next one goes on there.
bool PeerStreams::push(int peer) {
  Queue& queue = peers_[peer].sends;
  iovec pieces[kPiecesAtOnce];
  size_t count = 0;
  for (auto it = queue.pending.begin(); it != queue.pending.end() && count < kPiecesAtOnce; ++it)
    pieces[count++] = {it->data(), it->size()};
  size_t taken = peers_[peer].channel->write({pieces, count});
  const bool moved = taken > 0;
  while (!queue.pending.empty()) {
    std::span<std::byte>& front = queue.pending.front();
    const size_t n = std::min(taken, front.size());
    front = front.subspan(n);
    taken -= n;
    if (!front.empty()) break;
    queue.pending.pop_front();  // a transfer of no bytes needs no room
    ++queue.done;
  }
  return moved;
}

bool PeerStreams::pull(int peer) {
  Queue& queue = peers_[peer].recvs;
  bool moved = false;
  while (!queue.pending.empty()) {
    std::span<std::byte>& front = queue.pending.front();
    if (!front.empty()) {
      const size_t n = read(peer, front);
      if (n == 0) break;
      moved = true;
      front = front.subspan(n);
    }
    if (!front.empty()) continue;
    queue.pending.pop_front();
    ++queue.done;
  }
  return moved;
}

void PeerStreams::watch(std::vector<pollfd>& descriptors) const {
  for (size_t r = 0; r < peers_.size(); ++r) {
    const Peer& peer = peers_[r];
    const bool reads =
        !peer.recvs.pending.empty() || expected(static_cast<int>(r)) != Expect::Nothing;
    const int events = (peer.sends.pending.empty() ? 0 : POLLOUT) | (reads ? POLLIN : 0);
    if (peer.channel && peer.channel->descriptor() >= 0 && events != 0)
      descriptors.push_back({peer.channel->descriptor(), static_cast<short>(events), 0});
  }
}

}  // namespace ringgrad
