#include "ringgrad/distributed/point_to_point/message_matcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/failure.h"

namespace ringgrad {
namespace {

constexpr size_t kPiece = 4 << 20;  // a larger request travels as several messages

}  // namespace

// -- reading --------------------------------------------------------------------------------------

// Messages come one after the other. If one is offered to a collective, it stays in its stream, and
// so do the messages behind it.
bool MessageMatcher::read_from(int peer) {
  Peer& from = peers_[peer];
  bool moved = false;
  if (peer != wanted_ && (under_way_ == 0 || from.gone)) return false;
  const auto read = [&](std::span<std::byte> to) {
    const size_t n = to.empty() ? 0 : streams_.read(peer, to);
    moved |= n > 0;
    return n;
  };
  while (!from.offered && !streams_.transfers_from(peer)) {
    if (from.in_payload) {
      from.rest = from.rest.subspan(read(from.rest));
      if (!from.rest.empty()) break;
      from.in_payload = false;
      finish_payload(peer);
    } else {
      from.header_bytes += read(std::span(from.header).subspan(from.header_bytes));
      if (from.header_bytes < kFrameBytes) break;
      from.header_bytes = 0;
      route(peer);
    }
  }
  return moved;
}

// The header of a message has come. Decides where its payload goes.
void MessageMatcher::route(int peer) {
  Peer& from = peers_[peer];
  from.frame = transport_.decode_from(peer, from.header);
  const bool is_point_to_point = from.frame.operation == Operation::SendRecv;
  if (!is_point_to_point && peer == wanted_ && from.kept.empty()) {
    from.offered = true;
    return;
  }
  from.in_payload = true;
  from.request = nullptr;
  from.early = nullptr;
  if (is_point_to_point)
    for (const auto& request : receives_) {
      if (!fits(*request, peer, from.frame)) continue;
      from.request = request;
      from.rest = place_in(*request, peer, from.frame);
      return;  // from now on this rank is missed if nothing comes, even if any rank could have sent
    }
  auto bytes = std::make_unique_for_overwrite<std::byte[]>(from.frame.payload_bytes);
  EarlyMessage early{peer, from.frame, std::move(bytes)};
  from.early = is_point_to_point ? &unexpected_.emplace_back(std::move(early))
                                 : &from.kept.emplace_back(std::move(early));
  from.rest = from.early->bytes();
}

void MessageMatcher::finish_payload(int peer) {
  Peer& from = peers_[peer];
  if (from.early != nullptr) {
    transport_.check_payload(peer, from.frame, from.early->bytes());
    from.early->complete = true;
    match_unexpected();
    return;
  }
  const auto request = std::move(from.request);
  transport_.check_payload(peer, from.frame,
                           request->payload.subspan(request->received, from.frame.payload_bytes));
  add_to(request, from.frame.payload_bytes);
}

bool MessageMatcher::may_end(int peer) {
  const Peer& from = peers_[peer];
  if (expected(peer) == Expect::Message || from.in_payload || from.header_bytes > 0 ||
      streams_.transfers_from(peer) || streams_.sending(peer))
    return false;
  peers_[peer].gone = true;
  return true;
}

// -- collectives ----------------------------------------------------------------------------------

const Frame* MessageMatcher::message(int peer) const {
  const Peer& from = peers_[peer];
  if (from.kept.empty()) return from.offered ? &from.frame : nullptr;
  return from.kept.front().complete ? &from.kept.front().frame : nullptr;
}

bool MessageMatcher::take(int peer, std::span<std::byte> payload) {
  Peer& from = peers_[peer];
  if (from.kept.empty()) {
    from.offered = false;
    return false;
  }
  if (!payload.empty())
    std::memcpy(payload.data(), from.kept.front().payload.get(), payload.size());
  from.kept.pop_front();
  return true;
}

// -- messages
// --------------------------------------------------------------------------------------

void MessageMatcher::post(std::shared_ptr<PointToPointRequest> request) {
  std::lock_guard lock(posted_mutex_);
  posted_.push_back(std::move(request));
  ++under_way_;
  some_posted_ = true;
}

std::chrono::milliseconds MessageMatcher::shortest_timeout() {
  std::lock_guard lock(posted_mutex_);
  // With no request the timeout is longer than any wait.
  std::chrono::milliseconds shortest = std::chrono::seconds(1'000'000);
  for (const Requests* requests : {&receives_, &sends_, &posted_})
    for (const auto& request : *requests) shortest = std::min(shortest, request->timeout);
  return shortest;
}

std::string MessageMatcher::describe_first() {
  std::lock_guard lock(posted_mutex_);
  for (const Requests* requests : {&receives_, &sends_, &posted_})
    if (!requests->empty()) return describe(requests->front()->frame);
  return name(Operation::SendRecv);
}

bool MessageMatcher::progress() {
  const bool begun = begin_posted();
  return end_sent() || begun;  // a collective's push() may have sent the last bytes
}

bool MessageMatcher::begin_posted() {
  if (!some_posted_.load(std::memory_order_relaxed)) return false;
  for (std::unique_lock lock(posted_mutex_);; lock.lock()) {
    some_posted_ = !posted_.empty();
    if (posted_.empty()) break;
    PointToPointRequest& request = *posted_.front();
    Requests& requests = request.outgoing ? sends_ : receives_;
    requests.splice(requests.end(), posted_, posted_.begin());
    lock.unlock();
    if (request.outgoing)
      send(request);
    else if (request.peer != kAnyRank)
      peers_[request.peer].gone = false;  // else nothing would report that the peer has left
  }
  match_unexpected();
  return true;
}

void MessageMatcher::send(PointToPointRequest& request) {
  request.frame.sequence = ++peers_[request.peer].sends_begun;
  std::span<const std::byte> left = request.payload;
  do {
    const auto piece = left.first(std::min(left.size(), kPiece));
    left = left.subspan(piece.size());
    Frame frame = request.frame;
    frame.part = static_cast<uint32_t>(request.headers.size());
    frame.payload_bytes = piece.size();
    if (request.guarded) frame.payload_crc = payload_checksum(piece.data(), piece.size());
    request.headers.push_back(encode(frame));
    request.last = streams_.send(request.peer, request.headers.back());
    if (!piece.empty()) request.last = streams_.send(request.peer, piece);
  } while (!left.empty());
}

bool MessageMatcher::end_sent() {
  bool some = false;
  for (auto it = sends_.begin(); it != sends_.end();) {
    const auto request = *it++;
    if (!streams_.done(request->last)) continue;
    end(sends_, request, rank_);
    some = true;
  }
  return some;
}

void MessageMatcher::end(Requests& requests, std::shared_ptr<PointToPointRequest> request,
                         int sender) {
  requests.remove(request);
  --under_way_;
  request->arrive(sender);
}

bool MessageMatcher::fits(const PointToPointRequest& request, int peer, const Frame& frame) const {
  return (request.peer == kAnyRank || request.peer == peer) && request.frame.tag == frame.tag &&
         (request.number == 0 || request.number == frame.sequence);
}

// Checks that both sides mean the same, and returns the place of the next piece of a message.
std::span<std::byte> MessageMatcher::place_in(PointToPointRequest& request, int peer,
                                              const Frame& frame) const {
  Frame expected = request.frame;
  expected.sequence = frame.sequence;
  check_in_step(expected, rank_, frame, peer);
  CHECK_AS(OutOfStepError, frame.payload_bytes <= request.payload.size() - request.received,
           "send/recv: rank ", peer, " sent more than the ", request.payload.size(),
           " bytes that rank ", rank_, " expects");
  request.peer = peer;
  request.number = frame.sequence;
  return request.payload.subspan(request.received, frame.payload_bytes);
}

void MessageMatcher::add_to(const std::shared_ptr<PointToPointRequest>& request, size_t bytes) {
  request->received += bytes;
  if (request->received == request->payload.size()) end(receives_, request, request->peer);
}

// The messages of one sender go, in their order, to the receives that were posted first.
void MessageMatcher::match_unexpected() {
  for (auto early = unexpected_.begin(); early != unexpected_.end();) {
    const auto taker = std::find_if(receives_.begin(), receives_.end(), [&](const auto& request) {
      return fits(*request, early->peer, early->frame);
    });
    if (!early->complete || taker == receives_.end()) {
      ++early;
      continue;
    }
    const auto request = *taker;
    const auto place = place_in(*request, early->peer, early->frame);
    if (!place.empty()) std::memcpy(place.data(), early->payload.get(), place.size());
    early = unexpected_.erase(early);
    add_to(request, place.size());
  }
}

// Says which streams are read, and which ranks are missed if nothing comes.
Expect MessageMatcher::expected(int peer) const {
  const auto waits = [&](const auto& request) { return request->peer == peer; };
  if (peer == wanted_ || std::any_of(receives_.begin(), receives_.end(), waits))
    return Expect::Message;
  return under_way_ > 0 && !peers_[peer].gone ? Expect::Anything : Expect::Nothing;
}

void MessageMatcher::fail_all(std::exception_ptr error) noexcept {
  Requests requests = std::move(receives_);
  requests.splice(requests.end(), sends_);
  {
    std::lock_guard lock(posted_mutex_);
    requests.splice(requests.end(), posted_);
  }
  under_way_ -= static_cast<int>(requests.size());
  for (auto& request : requests) request->fail(error);
}

MessageMatcher& matcher_of(Transport& transport) {
  return static_cast<MessageMatcher&>(*transport.sorter());
}

void move_messages_until(Transport& transport, const std::function<bool()>& done) {
  transport.wait_until(done, [&] { return matcher_of(transport).shortest_timeout(); });
}

BEFORE_MAIN(
    message_matcher, make_sorter = [](Transport& transport) -> std::unique_ptr<Sorter> {
      return std::make_unique<MessageMatcher>(transport);
    });

}  // namespace ringgrad
