#include "ringgrad/distributed/transport/transport.h"

#include <sys/eventfd.h>

#include <algorithm>

#include "ringgrad/distributed/job/job_status.h"

namespace ringgrad {
namespace {

// The time for which a wait spins before it sleeps: a little longer than it takes to wake a
// sleeper. With less, one late rank turns every following barrier into a sleep and a wake-up, on
// each rank in turn. (Measured on two busy cores: 73 us for an all-reduce of 1 KiB, instead of
// 0.4.)
constexpr std::chrono::microseconds kSpin{100};
constexpr int kSpinsBetweenLooks = 128;  // the number of turns between two looks at the clock
// After so much silence a rank asks for the others' positions; later if many ranks share a core.
constexpr std::chrono::milliseconds kAskAfter{500};
constexpr std::chrono::milliseconds kSayAfter{5000};
constexpr int kMostPatience = 10;       // in timeouts, if some rank gets no core
constexpr std::chrono::hours kNap{24};  // poll() takes its milliseconds as an int

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Takes the control connections of all links, or the channels.
template <class Part>
std::vector<Part> parts_of(std::vector<Link>& links, Part Link::*part) {
  std::vector<Part> parts;
  for (Link& link : links) parts.push_back(std::move(link.*part));
  return parts;
}

}  // namespace

FileDescriptor new_doorbell() {
  FileDescriptor doorbell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  check_opened<DistributedError>(doorbell, "transport: eventfd");
  return doorbell;
}

Transport::Transport(int rank, std::vector<Link> links, int ranks_here, Deadline deadline)
    : ranks_(rank, parts_of(links, &Link::control)),
      streams_(parts_of(links, &Link::data)),
      sorter_(make_sorter ? make_sorter(*this) : nullptr),
      doorbell_(new_doorbell()),
      local_(find_local_peers ? find_local_peers(ranks_, streams_, doorbell_, deadline) : nullptr),
      ranks_here_(ranks_here) {}

Transport::~Transport() { ranks_.say_goodbye(); }

void Transport::complete(Deadline deadline) {
  cpu_set_t usable{};
  sched_getaffinity(0, sizeof usable, &usable);  // fails on machines with over 1,024 cores
  if (local_) {
    local_->complete(deadline);
    local_->add_cores(usable);
  }
  const int cores = std::max(1, CPU_COUNT(&usable));
  crowding_ = (ranks_here_ + cores - 1) / cores;
}

void Transport::push(int peer) {
  try {
    streams_.push(peer);
  } catch (const ChannelClosed& closed) {
    ranks_.fail_because_broken(peer, closed.how);
  }
}

void Transport::wait(const Transfer& transfer) {
  ranks_.check_interrupt();
  block_until([&] { return streams_.done(transfer); });
}

Frame Transport::await_message(int peer) {
  ranks_.check_interrupt();
  if (!sorter_) {
    FrameBytes header;
    wait(streams_.recv(peer, header));
    return decode_from(peer, header);
  }
  sorter_->want(peer);
  block_until([&] { return sorter_->message(peer) != nullptr; });
  sorter_->want(-1);
  return *sorter_->message(peer);
}

void Transport::receive_payload(int peer, const Frame& frame, std::span<std::byte> payload) {
  const bool taken = sorter_ && sorter_->take(peer, payload);
  if (!taken && !payload.empty()) wait(streams_.recv(peer, payload));
  check_payload(peer, frame, payload);
}

// "a message from rank 1 to rank 0 over tcp"
std::string Transport::link_from(int peer) const {
  return str("a message from rank ", peer, " to rank ", rank(), " over ",
             streams_.channel(peer).kind().name);
}

Frame Transport::decode_from(int peer, const FrameBytes& header) const {
  try {
    return decode(header);
  } catch (const DistributedError& error) {
    throw DistributedError(str(link_from(peer), ": ", error.what()));
  }
}

void Transport::check_payload(int peer, const Frame& frame,
                              std::span<const std::byte> payload) const {
  if (frame.payload_crc != 0 && payload_checksum &&
      frame.payload_crc != payload_checksum(payload.data(), payload.size()))
    throw DistributedError(str(link_from(peer), " was damaged on its way: the CRC of its ",
                               payload.size(), " bytes is wrong"));
}

void Transport::wait_until(const std::function<bool()>& done, const Timeout& timeout) {
  ranks_.check_interrupt();
  block_until(done, timeout);
}

void Transport::ring() noexcept { eventfd_write(doorbell_.get(), 1); }

void Transport::enter(const Frame& frame, std::shared_ptr<const std::string> about) {
  ranks_.check_interrupt();
  ranks_.set_position({frame, true, std::move(about)});
  if (local_) local_->show_position();
}

void Transport::interrupt(const Failure& failure) noexcept {
  ranks_.interrupt(failure);
  ring();
}

bool Transport::progress() {
  bool moved = sorter_ && sorter_->progress();
  for (int r = 0; r < size(); ++r) {
    try {
      if (streams_.sending(r)) moved |= streams_.push(r);
      if (streams_.transfers_from(r)) moved |= streams_.pull(r);
      if (sorter_) moved |= sorter_->read_from(r);
    } catch (const ChannelClosed& closed) {
      if (!sorter_ || !sorter_->may_end(r)) ranks_.fail_because_broken(r, closed.how);
      moved = true;  // the wait may be for bytes that came before the end
    }
  }
  return moved;
}

// -- waiting --------------------------------------------------------------------------------------

// First spins, unless spinning would keep the awaited rank off its core. Then sleeps, each time
// after one more look, and asks the other ranks after a while of silence. See Note [Sleeping
// without missing the bell] in shared_memory_peers.h.
template <class Done>
void Transport::block_until(const Done& done, const Timeout& timeout) {
  const bool may_spin = spinning_ && crowding_ == 1;
  bool spun = !may_spin;
  std::chrono::steady_clock::time_point until{};
  std::chrono::nanoseconds silent{0};
  std::chrono::nanoseconds patience{0};
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
      patience = grow_impatient(silent, timeout ? timeout() : timeout_);
      continue;  // the missing bytes may have arrived meanwhile
    }
    set_sleeping(true);
    const bool moved = progress();
    if (moved || done()) {
      set_sleeping(false);
      if (moved) silent = patience = {};
      continue;
    }
    if (local_) local_->check();
    silent += sleep(patience - silent);
    // Bytes that arrived before the message may complete this wait, even if the message says that
    // their sender died.
    if (progress()) silent = patience = {};
    if (!done()) attend();
  }
}

// Nothing has moved for `silent`. Asks the other ranks, reports the wait, and at last gives up.
// Returns the time until the next of these is due.
std::chrono::milliseconds Transport::grow_impatient(std::chrono::nanoseconds silent,
                                                    std::chrono::milliseconds timeout) {
  const auto ask = std::min(kAskAfter * crowding_, timeout / 2);
  const auto say = std::max(kSayAfter, 2 * ask);
  const auto attend_for = [this](std::chrono::milliseconds longest) {
    sleep(longest);
    attend();
  };
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

void Transport::set_sleeping(bool sleeping) {
  if (local_) local_->set_sleeping(sleeping);
}

// Returns the time slept, and never more than `longest`. Time in which this rank was stopped, or
// had no core, is no time in which it missed another rank.
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
  set_sleeping(false);
  eventfd_t rings;
  eventfd_read(doorbell_.get(), &rings);
  ranks_.check_interrupt();
  const auto ready = [](const pollfd& p) { return p.revents != 0; };
  has_news_ =
      std::any_of(polled_.begin(), polled_.begin() + static_cast<ptrdiff_t>(controls), ready);
  return std::min(slept, longest);
}

void Transport::attend() {
  if (has_news_) ranks_.attend();
}

}  // namespace ringgrad
