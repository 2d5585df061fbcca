#include "ringgrad/distributed/transport/transport.h"

#include <algorithm>
#include <exception>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/job/job_status.h"

namespace ringgrad {
namespace {

// How long a wait burns its core before it sleeps: a little longer than waking a sleeper takes. Less, and one late rank
// turns every following meeting into a sleep and a waking, on each rank in turn (measured on two cores with other work
// on them: 73 us for an all-reduce of 1 KiB, instead of 0.4).
constexpr std::chrono::microseconds kSpin{100};
constexpr int kSpinsBetweenLooks = 128;  // at the clock
constexpr size_t kPiecesAtOnce = 8;
constexpr std::chrono::milliseconds kAskAfter{500};  // of silence: where is everybody?
constexpr std::chrono::milliseconds kSayAfter{5000};

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

std::string describe(const Position& position) {
  if (position.frame.sequence == 0) return "before its first collective";
  const std::string names = position.about ? str(" (", *position.about, ")") : "";
  return str(position.inside ? "in " : "outside of collectives, its last one was ", describe(position.frame), names);
}

Transport::~Transport() {
  if (interrupted_) abort(*interruption_);  // nobody has waited since
  if (std::uncaught_exceptions() > exceptions_at_birth_)
    abort({FailureKind::Died, str("rank ", rank(), " failed with an exception")});
  tell_all({ControlKind::Goodbye});
}

Transfer Transport::send(int peer, std::span<const std::byte> bytes) {
  if (failure_) throw_failure(*failure_);
  Queue& queue = peers_[peer].sends;
  queue.pending.push_back({const_cast<std::byte*>(bytes.data()), bytes.size()});
  return {peer, true, ++queue.issued};
}

Transfer Transport::recv(int peer, std::span<std::byte> bytes) {
  if (failure_) throw_failure(*failure_);
  Queue& queue = peers_[peer].recvs;
  queue.pending.push_back({bytes.data(), bytes.size()});
  return {peer, false, ++queue.issued};
}

void Transport::wait(const Transfer& transfer) {
  check_interrupt();
  const Peer& peer = peers_[transfer.peer];
  const Queue& queue = transfer.outgoing ? peer.sends : peer.recvs;
  block_until([&] { return queue.done >= transfer.number; }, /*needs_all=*/false);
}

void Transport::enter(const Frame& frame, std::shared_ptr<const std::string> about) {
  check_interrupt();
  position_ = {frame, true, std::move(about)};
  if (memory_) show_position();
}

// -- moving bytes ---------------------------------------------------------------------------------------------------

bool Transport::push(int rank, Peer& peer) {
  iovec pieces[kPiecesAtOnce];
  size_t count = 0;
  for (auto it = peer.sends.pending.begin(); it != peer.sends.pending.end() && count < kPiecesAtOnce; ++it)
    pieces[count++] = {it->data, it->left};
  size_t taken = peer.channel->write({pieces, count});
  const bool moved = taken > 0;
  while (!peer.sends.pending.empty()) {
    Pending& front = peer.sends.pending.front();
    const size_t n = std::min(taken, front.left);
    front.data += n;
    front.left -= n;
    taken -= n;
    if (front.left > 0) break;
    peer.sends.pending.pop_front();
    ++peer.sends.done;
  }
  if (moved) ring_bell(rank);
  return moved;
}

bool Transport::pull(int rank, Peer& peer) {
  bool moved = false;
  while (!peer.recvs.pending.empty()) {
    Pending& front = peer.recvs.pending.front();
    if (front.left > 0) {
      const size_t n = peer.channel->read({front.data, front.left});
      if (n == 0) break;
      moved = true;
      front.data += n;
      front.left -= n;
    }
    if (front.left > 0) continue;
    peer.recvs.pending.pop_front();
    ++peer.recvs.done;
  }
  if (moved) ring_bell(rank);  // there is room again
  return moved;
}

bool Transport::progress() {
  bool moved = false;
  for (int r = 0; r < size(); ++r) {
    Peer& peer = peers_[r];
    try {
      if (!peer.sends.pending.empty()) moved |= push(r, peer);
      if (!peer.recvs.pending.empty()) moved |= pull(r, peer);
    } catch (const ChannelClosed& closed) {
      lost(r, closed.how);
    }
  }
  return moved;
}

// -- waiting --------------------------------------------------------------------------------------------------------

// Note [Sleeping without missing the bell]
// A waiter sets its board's `sleeping`, looks once more, and sleeps. A peer changes the shared memory, then reads
// `sleeping`, and rings the bell if it is set. All four accesses are sequentially consistent, so at least one of the
// two sees the other's write (Dekker's argument): the waiter finds the change, or the peer finds the sleeper. Rings
// that nobody needed any more only cost the waiter one turn of its loop.
template <class Done>
void Transport::block_until(const Done& done, bool needs_all) {
  const bool may_spin = spinning_ && roomy_;
  bool spun = !may_spin;
  std::chrono::steady_clock::time_point until{};
  Deadline ask, say, deadline;
  enum { Moving, Quiet, Asked, Said } silence = Moving;
  for (int spin = 0;;) {
    if (done()) return;
    if (progress()) {
      spin = 0;
      spun = !may_spin;
      silence = Moving;
      continue;
    }
    if (!spun) {
      pause();
      if (++spin % kSpinsBetweenLooks != 0) continue;
      const auto now = std::chrono::steady_clock::now();
      if (spin == kSpinsBetweenLooks) until = now + kSpin;
      spun = now >= until;
      continue;
    }
    if (memory_) board(rank()).sleeping.store(1);
    const bool moved = progress();
    if (moved || done()) {
      if (memory_) board(rank()).sleeping.store(0);
      if (moved) silence = Moving;
      continue;
    }
    check_left(needs_all);
    if (silence == Moving) {  // the first sleep after something has moved
      ask = Deadline::after(kAskAfter);
      say = Deadline::after(kSayAfter);
      deadline = Deadline::after(timeout());
      silence = Quiet;
    } else if (deadline.passed()) {
      timed_out();
    } else if (silence == Quiet && ask.passed()) {
      tell_all({ControlKind::Query});
      silence = Asked;
    } else if (silence == Asked && say.passed()) {
      const std::string what = position_.inside ? describe(position_.frame) : "a send or receive";
      report_waiting(str("has waited 5 s in ", what, who_is_missing()));
      silence = Said;
      continue;  // what was missing may have come with the answers
    }
    if (memory_) compare_boards();
    const int patience = deadline.poll_timeout();
    const Deadline next = silence == Quiet ? ask : silence == Asked ? say : deadline;
    sleep(std::min(next.poll_timeout(), patience));
  }
}

void Transport::wait_until(const std::function<bool()>& done) {
  check_interrupt();
  block_until(done, /*needs_all=*/true);
}

SharedSegment Transport::share(size_t bytes) {
  if (failure_) throw_failure(*failure_);
  SharedSegment segment{++segments_, std::vector<std::shared_ptr<SharedMemory>>(peers_.size())};
  segment.parts[rank()] = SharedMemory::create(bytes);
  const auto deadline = Deadline::after(timeout());
  for (int r = 0; r < size(); ++r)
    if (r != rank()) pass(r, segment.parts[rank()]->descriptor(), deadline);
  segment.parts[rank()]->close_descriptor();
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    Peer& peer = peers_[r];
    check_interrupt();  // whoever has given its part may leave
    block_until([&peer] { return !peer.descriptors.empty() || peer.left; }, /*needs_all=*/false);
    if (peer.descriptors.empty()) fail(left(r));
    segment.parts[r] = SharedMemory::open(std::move(peer.descriptors.front()));
    peer.descriptors.pop_front();
    CHECK_AS(OutOfStepError, segment.parts[r]->size() == segment.parts[rank()]->size(), "allocate_shared: rank ",
             rank(), " asks for ", bytes, " bytes, rank ", r, " for ", segment.parts[r]->size());
  }
  return segment;
}

void Transport::sleep(int milliseconds) {
  check_interrupt();
  polled_.clear();
  watch(polled_);
  const size_t controls = polled_.size();
  polled_.push_back({doorbell_.get(), POLLIN, 0});
  for (const Peer& peer : peers_) {
    const int events = (peer.sends.pending.empty() ? 0 : POLLOUT) | (peer.recvs.pending.empty() ? 0 : POLLIN);
    if (peer.channel && peer.channel->descriptor() >= 0 && events != 0)
      polled_.push_back({peer.channel->descriptor(), static_cast<short>(events), 0});
  }
  poll(polled_.data(), polled_.size(), milliseconds);
  if (memory_) board(rank()).sleeping.store(0);
  uint64_t rings;
  (void)!read(doorbell_.get(), &rings, sizeof rings);
  check_interrupt();
  const auto ready = [](const pollfd& p) { return p.revents != 0; };
  if (std::any_of(polled_.begin(), polled_.begin() + static_cast<ptrdiff_t>(controls), ready)) attend();
}

}  // namespace ringgrad
