#include "ringgrad/distributed/collectives/messenger.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/transport/crc32c.h"

namespace ringgrad {

Messenger::Messenger(Transport& transport, const Frame& frame, Checksums checksums)
    : transport_(transport), frame_(frame), checksums_(checksums), peers_(transport.size()) {}

// "a message from rank 1 to rank 0 over tcp"
std::string Messenger::link_from(int peer) const {
  return str("a message from rank ", peer, " to rank ", rank(), " over ", transport_.channel(peer));
}

Transfer Messenger::send(int peer, std::span<const std::byte> payload) {
  Peer& to = peers_[peer];
  const bool guarded =
      checksums_ == Checksums::On || (checksums_ == Checksums::Auto && !transport_.shares_memory_with(peer));
  do {
    const auto piece = payload.first(std::min<size_t>(payload.size(), kMaxPayload));
    payload = payload.subspan(piece.size());
    Frame frame = frame_;
    frame.part = to.sent++;
    frame.payload_bytes = piece.size();
    if (guarded) frame.payload_crc = crc32c(piece.data(), piece.size());
    headers_.push_back(encode(frame));
    to.last = transport_.send(peer, headers_.back());
    if (!piece.empty()) to.last = transport_.send(peer, piece);
  } while (!payload.empty());
  return to.last;
}

Frame Messenger::header_from(int peer) {
  FrameBytes bytes;
  transport_.wait(transport_.recv(peer, bytes));
  try {
    return decode(bytes);
  } catch (const DistributedError& error) {
    throw DistributedError(str(link_from(peer), ": ", error.what()));
  }
}

void Messenger::recv(int peer, std::span<std::byte> payload) {
  Peer& from = peers_[peer];
  do {
    const auto piece = payload.first(std::min<size_t>(payload.size(), kMaxPayload));
    payload = payload.subspan(piece.size());
    const Frame theirs = header_from(peer);
    check_in_step(frame_, rank(), theirs, peer);
    CHECK_AS(OutOfStepError, theirs.part == from.received && theirs.payload_bytes == piece.size(),
             "ranks are out of step: rank ", rank(), " expects message ", from.received, " of ", piece.size(),
             " bytes, rank ", peer, " sent message ", theirs.part, " of ", theirs.payload_bytes, " bytes in ",
             describe(frame_));
    ++from.received;
    if (!piece.empty()) transport_.wait(transport_.recv(peer, piece));
    if (theirs.payload_crc != 0 && theirs.payload_crc != crc32c(piece.data(), piece.size()))
      throw DistributedError(
          str(link_from(peer), " was damaged on its way: the CRC of its ", piece.size(), " bytes is wrong"));
  } while (!payload.empty());
}

void Messenger::finish() {
  for (const Peer& peer : peers_)
    if (peer.sent > 0) transport_.wait(peer.last);
  headers_.clear();
}

}  // namespace ringgrad
