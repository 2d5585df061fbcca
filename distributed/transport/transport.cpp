#include "ringgrad/distributed/transport/transport.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/job/job_status.h"

namespace ringgrad {
namespace {

// How long a wait burns its core before it sleeps: a little longer than waking a sleeper takes.
// Less, and one late rank turns every following meeting into a sleep and a waking, on each rank in
// turn (measured on two cores with other work on them: 73 us for an all-reduce of 1 KiB, instead of
// 0.4).
constexpr std::chrono::microseconds kSpin{100};
constexpr int kSpinsBetweenLooks = 128;  // at the clock
// After so much silence a rank asks where everybody is. Later where many share a core.
constexpr std::chrono::milliseconds kAskAfter{500};
constexpr std::chrono::milliseconds kSayAfter{5000};
constexpr int kMostPatience = 10;       // timeouts, with ranks that have no core
constexpr std::chrono::hours kNap{24};  // poll() counts milliseconds in an int

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

std::vector<FileDescriptor> controls_of(std::vector<Link>& links) {
  std::vector<FileDescriptor> controls;
  for (Link& link : links) controls.push_back(std::move(link.control));
  return controls;
}

std::vector<std::unique_ptr<Channel>> channels_of(std::vector<Link>& links) {
  std::vector<std::unique_ptr<Channel>> channels;
  for (Link& link : links) channels.push_back(std::move(link.data));
  return channels;
}

// Which ranks share this one's memory. REQUIRES: the links still have their channels.
std::vector<bool> local_ranks(const std::vector<Link>& links) {
  std::vector<bool> local;
  for (const Link& link : links)
    local.push_back(link.data && link.data->kind().reach == Reach::Memory);
  return local;
}

FileDescriptor new_doorbell() {
  FileDescriptor doorbell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  CHECK_AS(DistributedError, doorbell, "transport: eventfd: ", std::strerror(errno));
  return doorbell;
}

}  // namespace

Transport::Transport(int rank, std::vector<Link> links, int ranks_here, Deadline deadline)
    : local_(local_ranks(links)),
      ranks_(rank, controls_of(links)),
      streams_(channels_of(links)),
      mailbox_(streams_, rank, static_cast<int>(links.size())),
      doorbell_(new_doorbell()),
      memory_(ranks_, local_, doorbell_, deadline),
      ranks_here_(ranks_here) {}

Transport::~Transport() { ranks_.say_goodbye(); }

void Transport::complete(Deadline deadline) {
  for (int r = 0; r < size(); ++r)
    if (r != rank()) streams_.channel(r).complete(memory_, r, deadline);
  const int cores = std::max(1, memory_.usable_cores());
  crowding_ = (ranks_here_ + cores - 1) / cores;
}

void Transport::push(int peer) {
  try {
    if (streams_.push(peer)) memory_.ring_bell(peer);
  } catch (const ChannelClosed& closed) {
    ranks_.fail_because_broken(peer, closed.how);
  }
}

void Transport::wait(const Transfer& transfer) {
  ranks_.check_interrupt();
  block_until([&] { return streams_.done(transfer); }, For::Bytes);
}

Frame Transport::await_message(int peer) {
  ranks_.check_interrupt();
  mailbox_.want(peer);
  block_until([&] { return mailbox_.has_message(peer); }, For::Bytes);
  mailbox_.want(-1);
  return mailbox_.frame(peer);
}

void Transport::receive_payload(int peer, const Frame& frame, std::span<std::byte> payload) {
  if (!mailbox_.take(peer, payload) && !payload.empty()) wait(streams_.recv(peer, payload));
  mailbox_.check_payload(peer, frame, payload);
}

void Transport::move_letters_until(const std::function<bool()>& done) {
  ranks_.check_interrupt();
  block_until(done, For::Letters);
}

void Transport::ring() noexcept { eventfd_write(doorbell_.get(), 1); }

void Transport::enter(const Frame& frame, std::shared_ptr<const std::string> about) {
  ranks_.check_interrupt();
  ranks_.set_position({frame, true, std::move(about)});
  memory_.show_position();
}

void Transport::interrupt(const Failure& failure) noexcept {
  ranks_.interrupt(failure);
  ring();
}

bool Transport::progress() {
  bool moved = mailbox_.begin_posted();
  for (int r = 0; r < size(); ++r) {
    const auto ring_if = [&](bool some) {  // there are bytes for the peer, or there is room again
      if (some) memory_.ring_bell(r);
      moved |= some;
    };
    try {
      if (streams_.sending(r)) ring_if(streams_.push(r));
      if (streams_.transfers_from(r)) ring_if(streams_.pull(r));
      if (mailbox_.reads_from(r)) ring_if(mailbox_.read_from(r));
    } catch (const ChannelClosed& closed) {
      if (!mailbox_.may_end(r)) ranks_.fail_because_broken(r, closed.how);
      moved = true;  // what came before the end may be what was waited for
    }
  }
  moved |= mailbox_.end_sent();  // also where a collective's push() took the last bytes along
  return moved;
}

// -- waiting --------------------------------------------------------------------------------------

// First spins, unless that kept away the rank it waits for; then sleeps, each time after one more
// look, and after a while of silence asks around. See Note [Sleeping without missing the bell] in
// shared_memory_peers.h.
template <class Done>
void Transport::block_until(const Done& done, For what) {
  const bool may_spin = spinning_ && crowding_ == 1;
  bool spun = !may_spin;
  std::chrono::steady_clock::time_point until{};
  std::chrono::nanoseconds silent{0}, patience{0};
  for (int spin = 0;;) {
    if (done()) return;
    if (progress()) {
      spin = 0;
      spun = !may_spin;
      silent = patience = {};
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
    if (silent >= patience) {
      patience = grow_impatient(silent, what);
      continue;  // what was missing may have come meanwhile
    }
    memory_.set_sleeping(true);
    const bool moved = progress();
    if (moved || done()) {
      memory_.set_sleeping(false);
      if (moved) silent = patience = {};
      continue;
    }
    check_left(what);
    memory_.compare_boards();
    silent += sleep(patience - silent);
  }
}

// Nothing has moved for so long: asks around, says so, gives up at last. Returns when to do the
// next of these.
std::chrono::milliseconds Transport::grow_impatient(std::chrono::nanoseconds silent, For what) {
  const auto timeout = what == For::Letters ? mailbox_.shortest_timeout() : timeout_;
  const auto ask = std::min(kAskAfter * crowding_, timeout / 2), say = std::max(kSayAfter, 2 * ask);
  const auto attend_for = [this](std::chrono::milliseconds longest) { sleep(longest); };
  if (silent >= timeout) {
    if (silent >= kMostPatience * timeout || !ranks_.is_one_starved())
      ranks_.time_out(std::chrono::duration_cast<std::chrono::milliseconds>(silent), streams_,
                      attend_for);
    return std::chrono::duration_cast<std::chrono::milliseconds>(silent) + timeout;
  }
  if (silent >= say) {
    const std::string what =
        ranks_.position().inside ? describe(ranks_.position().frame) : "a send or receive";
    report_waiting(str("has waited ", std::chrono::round<std::chrono::seconds>(silent).count(),
                       " s in ", what, ranks_.who_is_missing(streams_, attend_for)));
    return timeout;
  }
  if (silent < ask) return ask;
  ranks_.ask_for_positions();
  return std::min(say, timeout);
}

// Called when nothing more can be received: throws if this rank needs one that has left, even in
// good order. What came before the goodbye is in shared memory by then; over TCP it may still be
// under way, and the stream's end tells.
void Transport::check_left(For what) {
  for (int r = 0; r < size(); ++r)
    if (ranks_.has_left(r) && memory_.opened(r) &&
        (what == For::Boards || streams_.receiving(r) || streams_.sending(r)))
      ranks_.fail_because_left(r);
}

// Returns how long it was, and no more than it was meant to be: time in which this rank was
// stopped, or had no core, is none in which it missed another.
std::chrono::nanoseconds Transport::sleep(std::chrono::nanoseconds longest) {
  ranks_.check_interrupt();
  polled_.clear();
  ranks_.watch(polled_);
  const size_t controls = polled_.size();
  polled_.push_back({doorbell_.get(), POLLIN, 0});
  streams_.watch(polled_);
  const auto begin = std::chrono::steady_clock::now();
  const auto at_most = std::chrono::ceil<std::chrono::milliseconds>(
      std::min<std::chrono::nanoseconds>(longest, kNap));
  poll(polled_.data(), polled_.size(), static_cast<int>(at_most.count()));
  const std::chrono::nanoseconds slept = std::chrono::steady_clock::now() - begin;
  memory_.set_sleeping(false);
  eventfd_t rings;
  eventfd_read(doorbell_.get(), &rings);
  ranks_.check_interrupt();
  const auto ready = [](const pollfd& p) { return p.revents != 0; };
  if (std::any_of(polled_.begin(), polled_.begin() + static_cast<ptrdiff_t>(controls), ready))
    ranks_.attend();
  return std::min(slept, longest);
}

void Transport::wait_until(const std::function<bool()>& done) {
  ranks_.check_interrupt();
  block_until(done, For::Boards);
}

SharedSegment Transport::share(size_t bytes) {
  ranks_.check_failure();
  SharedSegment segment = memory_.contribute(bytes, Deadline::after(timeout_));
  for (int r = 0; r < size(); ++r) {
    if (!local_[r]) continue;
    ranks_.check_interrupt();
    // A rank that has given its part may leave.
    block_until([&] { return ranks_.descriptors_from(r) > 0 || ranks_.has_left(r); }, For::Bytes);
    if (ranks_.descriptors_from(r) == 0) ranks_.fail_because_left(r);
    memory_.open_part(segment, r);
  }
  return segment;
}

}  // namespace ringgrad
