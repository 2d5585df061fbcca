#include "ringgrad/distributed/letters/mailbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/failure.h"

namespace ringgrad {
namespace {

constexpr size_t kPiece = 4 << 20;  // of a letter, which travels in messages of so many bytes

}  // namespace

// -- reading --------------------------------------------------------------------------------------

// Messages come one after the other. One that is offered waits in its stream, as does what follows,
// for the collective.
bool Mailbox::read_from(int peer) {
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

// The header of a message has come: where does its payload go?
void Mailbox::route(int peer) {
  Peer& from = peers_[peer];
  from.frame = transport_.decode_from(peer, from.header);
  const bool for_letter = from.frame.operation == Operation::SendRecv;
  if (!for_letter && peer == wanted_ && from.kept.empty()) {
    from.offered = true;
    return;
  }
  from.in_payload = true;
  from.letter = nullptr;
  from.message = nullptr;
  if (for_letter)
    for (const auto& letter : receives_) {
      if (!fits(*letter, peer, from.frame)) continue;
      from.letter = letter;
      from.rest = place_in(*letter, peer, from.frame);
      return;  // what could come from any rank is missed from this one now
    }
  auto bytes = std::make_unique_for_overwrite<std::byte[]>(from.frame.payload_bytes);
  Message message{peer, from.frame, std::move(bytes)};
  from.message = for_letter ? &strays_.emplace_back(std::move(message))
                            : &from.kept.emplace_back(std::move(message));
  from.rest = from.message->bytes();
}

void Mailbox::finish_payload(int peer) {
  Peer& from = peers_[peer];
  if (from.message != nullptr) {
    transport_.check_payload(peer, from.frame, from.message->bytes());
    from.message->complete = true;
    deliver_strays();
    return;
  }
  const auto letter = std::move(from.letter);
  transport_.check_payload(peer, from.frame,
                           letter->payload.subspan(letter->received, from.frame.payload_bytes));
  add_to(letter, from.frame.payload_bytes);
}

bool Mailbox::may_end(int peer) {
  const Peer& from = peers_[peer];
  if (expected(peer) == Expect::Message || from.in_payload || from.header_bytes > 0 ||
      streams_.transfers_from(peer) || streams_.sending(peer))
    return false;
  peers_[peer].gone = true;
  return true;
}

// -- collectives ----------------------------------------------------------------------------------

const Frame* Mailbox::message(int peer) const {
  const Peer& from = peers_[peer];
  if (from.kept.empty()) return from.offered ? &from.frame : nullptr;
  return from.kept.front().complete ? &from.kept.front().frame : nullptr;
}

bool Mailbox::take(int peer, std::span<std::byte> payload) {
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

// -- letters --------------------------------------------------------------------------------------

void Mailbox::post(std::shared_ptr<Letter> letter) {
  std::lock_guard lock(posted_mutex_);
  posted_.push_back(std::move(letter));
  ++under_way_;
  some_posted_ = true;
}

std::chrono::milliseconds Mailbox::shortest_timeout() {
  std::lock_guard lock(posted_mutex_);
  // With none it is longer than anybody waits.
  std::chrono::milliseconds shortest = std::chrono::seconds(1'000'000);
  for (const Letters* letters : {&receives_, &sends_, &posted_})
    for (const auto& letter : *letters) shortest = std::min(shortest, letter->timeout);
  return shortest;
}

std::string Mailbox::describe_first() {
  std::lock_guard lock(posted_mutex_);
  for (const Letters* letters : {&receives_, &sends_, &posted_})
    if (!letters->empty()) return describe(letters->front()->frame);
  return name(Operation::SendRecv);
}

bool Mailbox::progress() {
  const bool begun = begin_posted();
  return end_sent() || begun;  // also where a collective's push() took the last bytes along
}

bool Mailbox::begin_posted() {
  if (!some_posted_.load(std::memory_order_relaxed)) return false;
  for (std::unique_lock lock(posted_mutex_);; lock.lock()) {
    some_posted_ = !posted_.empty();
    if (posted_.empty()) break;
    Letter& letter = *posted_.front();
    Letters& letters = letter.outgoing ? sends_ : receives_;
    letters.splice(letters.end(), posted_, posted_.begin());
    lock.unlock();
    if (letter.outgoing)
      send(letter);
    else if (letter.peer != kAnyRank)
      peers_[letter.peer].gone = false;  // or nobody would learn that nothing can come
  }
  deliver_strays();
  return true;
}

void Mailbox::send(Letter& letter) {
  letter.frame.sequence = ++peers_[letter.peer].letters_sent;
  std::span<const std::byte> left = letter.payload;
  do {
    const auto piece = left.first(std::min(left.size(), kPiece));
    left = left.subspan(piece.size());
    Frame frame = letter.frame;
    frame.part = static_cast<uint32_t>(letter.headers.size());
    frame.payload_bytes = piece.size();
    if (letter.guarded) frame.payload_crc = payload_checksum(piece.data(), piece.size());
    letter.headers.push_back(encode(frame));
    letter.last = streams_.send(letter.peer, letter.headers.back());
    if (!piece.empty()) letter.last = streams_.send(letter.peer, piece);
  } while (!left.empty());
}

bool Mailbox::end_sent() {
  bool some = false;
  for (auto it = sends_.begin(); it != sends_.end();) {
    const auto letter = *it++;
    if (!streams_.done(letter->last)) continue;
    end(sends_, letter, rank_);
    some = true;
  }
  return some;
}

void Mailbox::end(Letters& letters, std::shared_ptr<Letter> letter, int sender) {
  letters.remove(letter);
  --under_way_;
  letter->arrive(sender);
}

bool Mailbox::fits(const Letter& letter, int peer, const Frame& frame) const {
  return (letter.peer == kAnyRank || letter.peer == peer) && letter.frame.tag == frame.tag &&
         (letter.number == 0 || letter.number == frame.sequence);
}

// Where the next piece of a letter belongs, once it is clear that both sides mean the same.
std::span<std::byte> Mailbox::place_in(Letter& letter, int peer, const Frame& frame) const {
  Frame expected = letter.frame;
  expected.sequence = frame.sequence;
  check_in_step(expected, rank_, frame, peer);
  CHECK_AS(OutOfStepError, frame.payload_bytes <= letter.payload.size() - letter.received,
           "send/recv: rank ", peer, " sent more than the ", letter.payload.size(),
           " bytes that rank ", rank_, " expects");
  letter.peer = peer;
  letter.number = frame.sequence;
  return letter.payload.subspan(letter.received, frame.payload_bytes);
}

void Mailbox::add_to(const std::shared_ptr<Letter>& letter, size_t bytes) {
  letter->received += bytes;
  if (letter->received == letter->payload.size()) end(receives_, letter, letter->peer);
}

// Of one sender, what came first goes to the receive that was posted first.
void Mailbox::deliver_strays() {
  for (auto stray = strays_.begin(); stray != strays_.end();) {
    const auto taker = std::find_if(receives_.begin(), receives_.end(), [&](const auto& letter) {
      return fits(*letter, stray->peer, stray->frame);
    });
    if (!stray->complete || taker == receives_.end()) {
      ++stray;
      continue;
    }
    const auto letter = *taker;
    const auto place = place_in(*letter, stray->peer, stray->frame);
    if (!place.empty()) std::memcpy(place.data(), stray->payload.get(), place.size());
    stray = strays_.erase(stray);
    add_to(letter, place.size());
  }
}

// Whose streams are watched, and who is missed when nothing comes.
Expect Mailbox::expected(int peer) const {
  const auto waits = [&](const auto& letter) { return letter->peer == peer; };
  if (peer == wanted_ || std::any_of(receives_.begin(), receives_.end(), waits))
    return Expect::Message;
  return under_way_ > 0 && !peers_[peer].gone ? Expect::Anything : Expect::Nothing;
}

void Mailbox::fail_all(std::exception_ptr error) noexcept {
  Letters letters = std::move(receives_);
  letters.splice(letters.end(), sends_);
  {
    std::lock_guard lock(posted_mutex_);
    letters.splice(letters.end(), posted_);
  }
  under_way_ -= static_cast<int>(letters.size());
  for (auto& letter : letters) letter->fail(error);
}

Mailbox& mailbox_of(Transport& transport) { return static_cast<Mailbox&>(*transport.sorter()); }

void move_letters_until(Transport& transport, const std::function<bool()>& done) {
  transport.wait_until(done, [&] { return mailbox_of(transport).shortest_timeout(); });
}

BEFORE_MAIN(
    mailbox, make_sorter = [](Transport& transport) -> std::unique_ptr<Sorter> {
      return std::make_unique<Mailbox>(transport);
    });

}  // namespace ringgrad
