#include "ringgrad/distributed/collectives/messenger.h"

#include <algorithm>
#include <numeric>

#include "ringgrad/core/base/check.h"

namespace ringgrad {

bool needs_checksum(Checksums which, const ChannelKind& kind) {
  return which == Checksums::On ||
         (which == Checksums::Auto && kind.reach == Reach::Network && payload_checksum);
}

Messenger::Messenger(Transport& transport, const Frame& frame, Checksums checksums,
                     std::vector<int> members, const SendObserver& on_send)
    : transport_(transport),
      frame_(frame),
      checksums_(checksums),
      members_(std::move(members)),
      on_send_(on_send) {
  if (members_.empty()) {
    members_.resize(static_cast<size_t>(transport.size()));
    std::iota(members_.begin(), members_.end(), 0);
  }
  rank_ = static_cast<int>(std::ranges::find(members_, transport.rank()) - members_.begin());
  peers_.resize(members_.size());
}

Transfer Messenger::send(int member, std::span<const std::byte> payload) {
  if (on_send_) on_send_(members_[member], payload);
  Peer& to = peers_[member];
  const int peer = members_[member];
  PeerStreams& streams = transport_.streams();
  const bool guarded = needs_checksum(checksums_, streams.channel(peer).kind());
  do {
    const auto piece = payload.first(std::min<size_t>(payload.size(), kMaxPayload));
    payload = payload.subspan(piece.size());
    Frame frame = frame_;
    frame.part = to.sent++;
    frame.payload_bytes = piece.size();
    if (guarded) frame.payload_crc = payload_checksum(piece.data(), piece.size());
    headers_.push_back(encode(frame));
    to.last = streams.send(peer, headers_.back());
    if (!piece.empty()) to.last = streams.send(peer, piece);
    if (guarded) transport_.push(peer);  // sends it while the cache still has what the CRC has read
  } while (!payload.empty());
  return to.last;
}

void Messenger::recv(int member, std::span<std::byte> payload) {
  Peer& from = peers_[member];
  const int peer = members_[member];
  const int rank = transport_.rank();
  do {
    const auto piece = payload.first(std::min<size_t>(payload.size(), kMaxPayload));
    payload = payload.subspan(piece.size());
    const Frame theirs = transport_.await_message(peer);
    check_in_step(frame_, rank, theirs, peer);
    CHECK_AS(OutOfStepError, theirs.part == from.received && theirs.payload_bytes == piece.size(),
             "ranks are out of step: rank ", rank, " expects message ", from.received, " of ",
             piece.size(), " bytes, rank ", peer, " sent message ", theirs.part, " of ",
             theirs.payload_bytes, " bytes in ", describe(frame_));
    ++from.received;
    transport_.receive_payload(peer, theirs, piece);
  } while (!payload.empty());
}

void Messenger::finish() {
  for (const Peer& peer : peers_)
    if (peer.sent > 0) transport_.wait(peer.last);
  headers_.clear();
}

}  // namespace ringgrad
