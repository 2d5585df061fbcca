#include "ringgrad/distributed/collectives/messenger.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad {

Messenger::Messenger(Transport& transport, const Frame& frame, bool checksums, const SendObserver& on_send)
    : transport_(transport), frame_(frame), checksums_(checksums), on_send_(on_send), peers_(transport.size()) {}

Transfer Messenger::send(int peer, std::span<const std::byte> payload) {
  if (on_send_) on_send_(peer, payload);
  Peer& to = peers_[peer];
  do {
    const auto piece = payload.first(std::min<size_t>(payload.size(), kMaxPayload));
    payload = payload.subspan(piece.size());
    Frame frame = frame_;
    frame.part = to.sent++;
    frame.payload_bytes = piece.size();
    if (checksums_) frame.payload_crc = crc_of(piece.data(), piece.size());
    headers_.push_back(encode(frame));
    to.last = transport_.send(peer, headers_.back());
    if (!piece.empty()) to.last = transport_.send(peer, piece);
  } while (!payload.empty());
  return to.last;
}

void Messenger::recv(int peer, std::span<std::byte> payload) {
  Peer& from = peers_[peer];
  do {
    const auto piece = payload.first(std::min<size_t>(payload.size(), kMaxPayload));
    payload = payload.subspan(piece.size());
    FrameBytes bytes;
    transport_.wait(transport_.recv(peer, bytes));
    const Frame theirs = decode(bytes);
    check_in_step(frame_, rank(), theirs, peer);
    CHECK_AS(OutOfStepError, theirs.part == from.received && theirs.payload_bytes == piece.size(),
             "ranks are out of step: rank ", rank(), " expects message ", from.received, " of ", piece.size(),
             " bytes, rank ", peer, " sent message ", theirs.part, " of ", theirs.payload_bytes, " bytes in ",
             describe(frame_));
    ++from.received;
    if (!piece.empty()) transport_.wait(transport_.recv(peer, piece));
    if (theirs.payload_crc != 0)
      CHECK_AS(DistributedError, theirs.payload_crc == crc_of(piece.data(), piece.size()), "a message from rank ", peer,
               " to rank ", rank(), " was damaged on its way: the CRC of its ", piece.size(), " bytes is wrong");
  } while (!payload.empty());
}

void Messenger::finish() {
  for (const Peer& peer : peers_)
    if (peer.sent > 0) transport_.wait(peer.last);
  headers_.clear();
}

}  // namespace ringgrad
