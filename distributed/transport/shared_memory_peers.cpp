// The shared-memory side of Transport: boards, queues and doorbells.
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/transport/channel.h"
#include "ringgrad/distributed/transport/transport.h"

namespace ringgrad {
namespace {

constexpr uint32_t kBoardMagic = 0x64424752;
constexpr size_t kQueueBytes = 512 << 10;  // two segments of the ring; a few such queues lie in a second-level cache

// One rank's memory: its board, its staging area, then one queue to every rank.
size_t queue_offset(int peer) {
  return kBoardBytes + kStagingBytes + ByteQueue::footprint(kQueueBytes) * static_cast<size_t>(peer);
}

}  // namespace

Transport::Transport(int rank, std::vector<Link> links, int ranks_here, Deadline deadline)
    : rank_(rank),
      doorbell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      ranks_here_(ranks_here),
      exceptions_at_birth_(std::uncaught_exceptions()) {
  CHECK_AS(DistributedError, doorbell_, "transport: eventfd: ", std::strerror(errno));
  for (Link& link : links) peers_.emplace_back(std::move(link));
  for (int r = 0; r < size(); ++r) {
    any_local_ |= local(peers_[r]);
    all_local_ &= r == rank || local(peers_[r]);
  }
  if (!any_local_ && !all_local_) return;

  memory_ = SharedMemory::create(queue_offset(size()));
  Board& own = *new (memory_->data()) Board{};
  own.rank = rank;
  own.size = size();
  own.queue_capacity = kQueueBytes;
  sched_getaffinity(0, sizeof own.cpus, &own.cpus);
  own.magic = kBoardMagic;
  for (int r = 0; r < size(); ++r) {
    if (!local(peers_[r])) continue;
    pass(r, memory_->descriptor(), deadline);
    pass(r, doorbell_.get(), deadline);
  }
  memory_->close_descriptor();
}

// Descriptors that nobody has taken yet count against a limit of the user, so this rank takes its own between attempts.
void Transport::pass(int rank, int descriptor, Deadline deadline) {
  Peer& peer = peers_[rank];
  while (!peer.control.send({ControlKind::Descriptor}, descriptor) && !peer.left) {
    const int reason = errno;
    attend();
    if (deadline.passed())
      fail({FailureKind::TimedOut, str("rank ", rank_, " could not hand shared memory to rank ", rank, ": ",
                                       std::strerror(reason), "; raise ulimit -n, or use --transport tcp")});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Transport::await_descriptors(int rank, Deadline deadline) {
  Peer& peer = peers_[rank];
  for (attend(); peer.descriptors.size() < 2; attend()) {
    pollfd ready{peer.control.descriptor(), POLLIN, 0};
    if (poll(&ready, 1, deadline.poll_timeout()) == 0)
      fail({FailureKind::TimedOut, str("rank ", rank, " did not send its shared memory in time")});
  }
  peer.memory = SharedMemory::open(std::move(peer.descriptors[0]));
  peer.doorbell = std::move(peer.descriptors[1]);
  peer.descriptors.erase(peer.descriptors.begin(), peer.descriptors.begin() + 2);  // it may have sent more already
  const Board& theirs = board(rank);
  CHECK_AS(DistributedError,
           peer.memory->size() == memory_->size() && theirs.magic == kBoardMagic && theirs.rank == rank &&
               theirs.size == size() && theirs.queue_capacity == kQueueBytes,
           "transport: rank ", rank, " runs another program or version than rank ", rank_);
}

void Transport::complete(Deadline deadline) {
  cpu_set_t cpus;
  sched_getaffinity(0, sizeof cpus, &cpus);
  for (int r = 0; r < size(); ++r) {
    Peer& peer = peers_[r];
    if (peer.data) {
      peer.channel = std::make_unique<SocketChannel>(std::move(peer.data));
      continue;
    }
    if (r != rank()) {
      await_descriptors(r, deadline);
      peer.channel = std::make_unique<ShmChannel>(ByteQueue(memory_of(rank()) + queue_offset(r), kQueueBytes),
                                                  ByteQueue(memory_of(r) + queue_offset(rank()), kQueueBytes));
    }
    if (memory_) CPU_OR(&cpus, &cpus, &board(r).cpus);
  }
  // A core for every rank, or a spinning rank would keep away the one it waits for.
  roomy_ = ranks_here_ <= CPU_COUNT(&cpus);
}

std::byte* Transport::memory_of(int rank) const {
  return rank == rank_ ? memory_->data() : peers_[rank].memory->data();
}

Board& Transport::board(int rank) { return *std::launder(reinterpret_cast<Board*>(memory_of(rank))); }

std::byte* Transport::staging(int rank) { return memory_of(rank) + kBoardBytes; }

// See Note [Sleeping without missing the bell].
void Transport::ring_bell(int rank) {
  Peer& peer = peers_[rank];
  if (!peer.memory || board(rank).sleeping.load() == 0 || board(rank).sleeping.exchange(0) == 0) return;
  const uint64_t one = 1;
  (void)!write(peer.doorbell.get(), &one, sizeof one);
}

void Transport::ring_bells() {
  for (int r = 0; r < size(); ++r) ring_bell(r);
}

void Transport::show_position() {
  Board& own = board(rank());
  uint64_t words[kFrameBytes / 8];
  std::memcpy(words, &position_.frame, kFrameBytes);
  for (size_t i = 0; i < own.frame.size(); ++i) own.frame[i].store(words[i], std::memory_order_relaxed);
  own.fingerprint.store(fingerprint(position_.frame), std::memory_order_relaxed);
  own.entered.store(position_.frame.sequence);
  ring_bells();
}

// Throws unless the frame that `rank` shows for its collective number `sequence` agrees with this rank's. Where it has
// gone on to the next one meanwhile, there is nothing to compare. It may be writing that one's words right now: a
// mixture of two frames has the fingerprint of neither.
void Transport::compare_board(int rank, uint64_t sequence) {
  const Board& theirs = board(rank);
  uint64_t words[kFrameBytes / 8];
  for (size_t i = 0; i < theirs.frame.size(); ++i) words[i] = theirs.frame[i].load(std::memory_order_relaxed);
  Frame frame;
  std::memcpy(&frame, words, kFrameBytes);
  if (frame.sequence == sequence && fingerprint(frame) == theirs.fingerprint.load()) compare(frame, rank);
}

// Before this rank sleeps: is anybody in the same collective, by its number, with another frame?
void Transport::compare_boards() {
  const uint64_t mine = position_.frame.sequence;
  for (int r = 0; r < size(); ++r)
    if (mine > 0 && r != rank() && peers_[r].memory && board(r).entered.load() == mine) compare_board(r, mine);
}

void Transport::check_entered() {
  const Board& own = board(rank());
  for (int r = 0; r < size(); ++r) {
    const uint64_t sequence = board(r).entered.load();
    if (sequence != position_.frame.sequence || board(r).fingerprint.load() != own.fingerprint.load())
      compare_board(r, sequence);
  }
}

}  // namespace ringgrad
