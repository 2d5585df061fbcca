#include "distributed/mesh_transport.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <exception>

#include "core/check.h"
#include "distributed/shm_channel.h"
#include "distributed/socket_channel.h"

namespace ringgrad {
namespace {

constexpr uint32_t kBoardMagic = 0x64424752;
constexpr size_t kQueueBytes =
    512 << 10;  // two segments of the ring; four such queues lie in a core's second-level cache
constexpr int kSpins = 1000;
constexpr size_t kPiecesAtOnce = 8;

size_t queue_offset(int peer) { return kBoardBytes + ByteQueue::footprint(kQueueBytes) * static_cast<size_t>(peer); }

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

MeshTransport::MeshTransport(int rank, std::vector<Link> links)
    : Transport(rank, static_cast<int>(links.size())), exceptions_at_birth_(std::uncaught_exceptions()) {
  for (Link& link : links)
    peers_.push_back({ControlLink(std::move(link.control)), std::move(link.data), {}, {}, {}, {}, {}, {}, {}, {}});
  for (int r = 0; r < size(); ++r) {
    any_local_ |= local(peers_[r]);
    all_local_ &= r == rank || local(peers_[r]);
  }
  if (!any_local_ && size() > 1) return;

  memory_ = SharedMemory::create(queue_offset(size()));
  doorbell_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  CHECK_AS(DistributedError, doorbell_, "transport: eventfd: ", std::strerror(errno));
  Board& own = *new (memory_->data()) Board{};
  own.rank = rank;
  own.size = size();
  own.queue_capacity = kQueueBytes;
  sched_getaffinity(0, sizeof own.cpus, &own.cpus);
  own.magic = kBoardMagic;
  for (Peer& peer : peers_) {
    if (!local(peer)) continue;
    peer.control.send({ControlKind::Descriptor, {}, memory_->size()}, memory_->descriptor());
    peer.control.send({ControlKind::Descriptor}, doorbell_.get());
  }
}

void MeshTransport::complete(Deadline deadline) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (memory_) cpus = board(rank()).cpus;
  int locals = 1;
  for (int r = 0; r < size(); ++r) {
    Peer& peer = peers_[r];
    if (r == rank()) continue;
    if (peer.data) {
      peer.channel = std::make_unique<SocketChannel>(std::move(peer.data));
      continue;
    }
    while (peer.descriptors.size() < 2) {
      attend();
      if (peer.descriptors.size() >= 2) break;
      pollfd ready{peer.control.descriptor(), POLLIN, 0};
      CHECK_AS(TimeoutError, poll(&ready, 1, deadline.poll_timeout()) != 0 || !deadline.passed(), "transport: rank ", r,
               " did not send its shared memory");
    }
    peer.memory = SharedMemory::open(std::move(peer.descriptors[0]));
    peer.doorbell = std::move(peer.descriptors[1]);
    peer.descriptors.clear();
    const Board& theirs = board(r);
    CHECK_AS(DistributedError,
             peer.memory->size() == memory_->size() && theirs.magic == kBoardMagic && theirs.rank == r &&
                 theirs.size == size() && theirs.queue_capacity == kQueueBytes,
             "transport: rank ", r, " has another program or version than rank ", rank());
    CPU_OR(&cpus, &cpus, &theirs.cpus);
    ++locals;
    peer.channel = std::make_unique<ShmChannel>(ByteQueue(memory_->data() + queue_offset(r), kQueueBytes),
                                                ByteQueue(peer.memory->data() + queue_offset(rank()), kQueueBytes));
  }
  // A core for every rank, or a spinning rank would keep away the one it waits for.
  roomy_ = locals <= CPU_COUNT(&cpus);
}

MeshTransport::~MeshTransport() {
  if (std::uncaught_exceptions() > exceptions_at_birth_)
    abort({FailureKind::Died, str("rank ", rank(), " failed with an exception")});
  tell_all({ControlKind::Goodbye});
}

Transfer MeshTransport::send(int peer, std::span<const std::byte> bytes) {
  if (failure_) throw_failure(*failure_);
  Queue& queue = peers_[peer].sends;
  queue.pending.push_back({const_cast<std::byte*>(bytes.data()), bytes.size()});
  return {peer, true, ++queue.issued};
}

Transfer MeshTransport::recv(int peer, std::span<std::byte> bytes) {
  if (failure_) throw_failure(*failure_);
  Queue& queue = peers_[peer].recvs;
  queue.pending.push_back({bytes.data(), bytes.size()});
  return {peer, false, ++queue.issued};
}

void MeshTransport::wait(const Transfer& transfer) {
  const Peer& peer = peers_[transfer.peer];
  const Queue& queue = transfer.outgoing ? peer.sends : peer.recvs;
  wait_until([&] { return queue.done >= transfer.number; });
}

// -- moving bytes ---------------------------------------------------------------------------------------------------

bool MeshTransport::push(int rank, Peer& peer) {
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

bool MeshTransport::pull(int rank, Peer& peer) {
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

bool MeshTransport::progress() {
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
void MeshTransport::wait_until(Done done) {
  const int spins = spinning() && roomy_ ? kSpins : 0;
  Deadline deadline;
  bool quiet = false;  // the deadline runs, since the first sleep after something has moved
  for (int spin = 0;;) {
    if (done()) return;
    if (progress()) {
      spin = 0;
      quiet = false;
      continue;
    }
    if (spin++ < spins) {
      pause();
      continue;
    }
    if (memory_) board(rank()).sleeping.store(1);
    const bool moved = progress();
    if (moved || done()) {
      if (memory_) board(rank()).sleeping.store(0);
      if (moved) quiet = false;
      continue;
    }
    if (!std::exchange(quiet, true)) deadline = Deadline::after(timeout());
    if (deadline.passed()) timed_out();
    sleep(deadline.poll_timeout());
  }
}

void MeshTransport::wait_until(bool (*done)(void*), void* context) {
  wait_until([=] { return done(context); });
}

void MeshTransport::sleep(int milliseconds) {
  if (failure_) throw_failure(*failure_);
  polled_.clear();
  watch(polled_);
  const size_t controls = polled_.size();
  if (doorbell_) polled_.push_back({doorbell_.get(), POLLIN, 0});
  for (const Peer& peer : peers_) {
    const int events = (peer.sends.pending.empty() ? 0 : POLLOUT) | (peer.recvs.pending.empty() ? 0 : POLLIN);
    if (peer.channel && peer.channel->descriptor() >= 0 && events != 0)
      polled_.push_back({peer.channel->descriptor(), static_cast<short>(events), 0});
  }
  poll(polled_.data(), polled_.size(), milliseconds);
  if (memory_) board(rank()).sleeping.store(0);
  uint64_t rings;
  if (doorbell_) (void)!read(doorbell_.get(), &rings, sizeof rings);
  if (std::any_of(polled_.begin(), polled_.begin() + controls, [](const pollfd& p) { return p.revents != 0; }))
    attend();
}

void MeshTransport::ring_bell(int rank) {
  Peer& peer = peers_[rank];
  if (!peer.memory || board(rank).sleeping.load() == 0 || board(rank).sleeping.exchange(0) == 0) return;
  const uint64_t one = 1;
  (void)!write(peer.doorbell.get(), &one, sizeof one);
}

void MeshTransport::watch(std::vector<pollfd>& descriptors) const {
  for (const Peer& peer : peers_)
    if (peer.control.descriptor() >= 0) descriptors.push_back({peer.control.descriptor(), POLLIN | POLLRDHUP, 0});
}

// -- the shared domain ----------------------------------------------------------------------------------------------

Board& MeshTransport::board(int rank) {
  const auto& memory = rank == this->rank() ? memory_ : peers_[rank].memory;
  return *std::launder(reinterpret_cast<Board*>(memory->data()));
}

void MeshTransport::ring_bells() {
  for (int r = 0; r < size(); ++r) ring_bell(r);
}

SharedSegment MeshTransport::share(size_t bytes) {
  if (failure_) throw_failure(*failure_);
  SharedSegment segment{++segments_, std::vector<std::shared_ptr<SharedMemory>>(peers_.size())};
  segment.parts[rank()] = SharedMemory::create(bytes);
  for (Peer& peer : peers_)
    peer.control.send({ControlKind::Descriptor, {}, bytes}, segment.parts[rank()]->descriptor());
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    Peer& peer = peers_[r];
    wait_until([&] { return !peer.descriptors.empty(); });
    segment.parts[r] = SharedMemory::open(std::move(peer.descriptors.front()));
    peer.descriptors.pop_front();
    CHECK_AS(OutOfStepError, segment.parts[r]->size() == bytes, "allocate_shared: rank ", rank(), " asks for ", bytes,
             " bytes, rank ", r, " for ", segment.parts[r]->size());
  }
  return segment;
}

}  // namespace ringgrad
