#include "ringgrad/distributed/transport/shared_memory_peers.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

constexpr uint32_t kBoardMagic = 0x64424752;
// Two segments of the ring; a few such queues lie in a second-level cache.
constexpr size_t kQueueBytes = 512 << 10;

// One rank's memory: its board, its staging area, then one queue to every rank.
size_t queue_offset(int peer) {
  return kBoardBytes + kStagingBytes +
         ByteQueue::footprint(kQueueBytes) * static_cast<size_t>(peer);
}

}  // namespace

// -- handing over, and opening --------------------------------------------------------------------

SharedMemoryPeers::SharedMemoryPeers(FailureDetector& ranks, const std::vector<bool>& local,
                                     const FileDescriptor& doorbell, Deadline deadline)
    : ranks_(ranks), rank_(ranks.rank()), size_(ranks.size()), peers_(local.size()) {
  if (size_ > 1 && std::find(local.begin(), local.end(), true) == local.end()) return;

  memory_ = SharedMemory::create(queue_offset(size_));
  Board& own = *new (memory_->data()) Board{};
  own.rank = rank_;
  own.size = size_;
  own.queue_capacity = kQueueBytes;
  sched_getaffinity(0, sizeof own.cpus, &own.cpus);
  own.magic = kBoardMagic;
  for (int r = 0; r < size_; ++r) {
    if (!local[r]) continue;
    hand_over(r, memory_->descriptor(), deadline);
    hand_over(r, doorbell.get(), deadline);
  }
  memory_->close_descriptor();
}

// Descriptors that nobody has taken yet count against a limit of the user, so this rank takes its
// own between attempts.
void SharedMemoryPeers::hand_over(int peer, int descriptor, Deadline deadline) {
  while (!ranks_.send_descriptor(peer, descriptor) && !ranks_.has_left(peer)) {
    const int reason = errno;
    ranks_.attend();
    if (deadline.passed())
      ranks_.fail({FailureKind::TimedOut,
                   str("rank ", rank_, " could not hand shared memory to rank ", peer, ": ",
                       std::strerror(reason), "; raise ulimit -n, or use --transport tcp")});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

QueuePair SharedMemoryPeers::open(int peer, Deadline deadline) {
  for (ranks_.attend(); ranks_.descriptors_from(peer) < 2; ranks_.attend()) {
    pollfd ready{ranks_.control_of(peer), POLLIN, 0};
    if (poll(&ready, 1, deadline.poll_timeout()) == 0)
      ranks_.fail(
          {FailureKind::TimedOut, str("rank ", peer, " did not send its shared memory in time")});
  }
  peers_[peer].memory = SharedMemory::open(ranks_.take_descriptor(peer));
  peers_[peer].doorbell = ranks_.take_descriptor(peer);
  const Board& theirs = board(peer);
  CHECK_AS(DistributedError,
           peers_[peer].memory->size() == memory_->size() && theirs.magic == kBoardMagic &&
               theirs.rank == peer && theirs.size == size_ && theirs.queue_capacity == kQueueBytes,
           "transport: rank ", peer, " runs another program or version than rank ", rank_);
  return {ByteQueue(memory_of(rank_) + queue_offset(peer), kQueueBytes),
          ByteQueue(memory_of(peer) + queue_offset(rank_), kQueueBytes)};
}

int SharedMemoryPeers::usable_cores() const {
  cpu_set_t cpus;
  sched_getaffinity(0, sizeof cpus, &cpus);
  for (int r = 0; r < size_; ++r)
    if (opened(r)) CPU_OR(&cpus, &cpus, &board(r).cpus);
  return CPU_COUNT(&cpus);
}

std::byte* SharedMemoryPeers::memory_of(int rank) const {
  return rank == rank_ ? memory_->data() : peers_[rank].memory->data();
}

Board& SharedMemoryPeers::board(int rank) const {
  return *std::launder(reinterpret_cast<Board*>(memory_of(rank)));
}

SharedSegment SharedMemoryPeers::contribute(size_t bytes, Deadline deadline) {
  SharedSegment segment{++segments_, std::vector<std::shared_ptr<SharedMemory>>(peers_.size())};
  segment.parts[rank_] = SharedMemory::create(bytes);
  for (int r = 0; r < size_; ++r)
    if (opened(r)) hand_over(r, segment.parts[rank_]->descriptor(), deadline);
  segment.parts[rank_]->close_descriptor();
  return segment;
}

void SharedMemoryPeers::open_part(SharedSegment& segment, int peer) {
  const size_t bytes = segment.parts[rank_]->size();
  segment.parts[peer] = SharedMemory::open(ranks_.take_descriptor(peer));
  CHECK_AS(OutOfStepError, segment.parts[peer]->size() == bytes, "allocate_shared: rank ", rank_,
           " asks for ", bytes, " bytes, rank ", peer, " for ", segment.parts[peer]->size());
}

// -- doorbells ------------------------------------------------------------------------------------

void SharedMemoryPeers::set_sleeping(bool sleeping) {
  if (memory_) board(rank_).sleeping.store(sleeping ? 1 : 0);
}

void SharedMemoryPeers::ring_bell(int peer) {
  if (!opened(peer) || board(peer).sleeping.load() == 0 || board(peer).sleeping.exchange(0) == 0)
    return;
  eventfd_write(peers_[peer].doorbell.get(), 1);
}

bool SharedMemoryPeers::complete(std::atomic<uint64_t> Board::*count, uint64_t value) const {
  for (int r = 0; r < size_; ++r)
    if ((r == rank_ || opened(r)) && (board(r).*count).load() < value) return false;
  return true;
}

void SharedMemoryPeers::ring_if_complete(std::atomic<uint64_t> Board::*count, uint64_t value) {
  if (!complete(count, value)) return;
  for (int r = 0; r < size_; ++r) ring_bell(r);
}

// -- who is in which collective -------------------------------------------------------------------

void SharedMemoryPeers::show_position() {
  if (!memory_) return;
  const Frame& frame = ranks_.position().frame;
  Board& own = board(rank_);
  uint64_t words[kFrameBytes / 8];
  std::memcpy(words, &frame, kFrameBytes);
  for (size_t i = 0; i < own.frame.size(); ++i)
    own.frame[i].store(words[i], std::memory_order_relaxed);
  own.fingerprint.store(fingerprint(frame), std::memory_order_relaxed);
  own.entered.store(frame.sequence);
  ring_if_complete(&Board::entered, frame.sequence);
}

// Throws unless the frame that `rank` shows for its collective number `sequence` agrees with this
// rank's. Where it has gone on to the next one meanwhile, there is nothing to compare. It may be
// writing that one's words right now: a mixture of two frames has the fingerprint of neither.
void SharedMemoryPeers::compare_board(int rank, uint64_t sequence) {
  const Board& theirs = board(rank);
  uint64_t words[kFrameBytes / 8];
  for (size_t i = 0; i < theirs.frame.size(); ++i)
    words[i] = theirs.frame[i].load(std::memory_order_relaxed);
  Frame frame;
  std::memcpy(&frame, words, kFrameBytes);
  if (frame.sequence == sequence && fingerprint(frame) == theirs.fingerprint.load())
    ranks_.compare(frame, rank);
}

void SharedMemoryPeers::compare_boards() {
  if (!memory_) return;
  const uint64_t mine = ranks_.position().frame.sequence;
  for (int r = 0; r < size_; ++r)
    if (mine > 0 && r != rank_ && opened(r) && board(r).entered.load() == mine)
      compare_board(r, mine);
}

void SharedMemoryPeers::check_entered() {
  const Board& own = board(rank_);
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && !opened(r)) continue;
    const uint64_t sequence = board(r).entered.load();
    if (sequence != ranks_.position().frame.sequence ||
        board(r).fingerprint.load() != own.fingerprint.load())
      compare_board(r, sequence);
  }
}

}  // namespace ringgrad
