#include "ringgrad/distributed/shared_memory/shared_memory_peers.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/shared_memory/local_socket.h"

namespace ringgrad {

// The transport "shm": two queues in memory that both ranks share, and a Unix socket over which
// that memory was handed over. A rank rings the other one's doorbell when there are new bytes, or
// new room.
class SharedMemoryChannel final : public Channel {
 public:
  explicit SharedMemoryChannel(FileDescriptor socket) : socket_(std::move(socket)) {}

  // Sends a descriptor, which stays the caller's. Never waits: returns false, with errno set, if it
  // cannot send now.
  bool send_descriptor(int descriptor) const {
    Envelope envelope;
    cmsghdr* ancillary = CMSG_FIRSTHDR(&envelope.message);
    ancillary->cmsg_level = SOL_SOCKET;
    ancillary->cmsg_type = SCM_RIGHTS;
    ancillary->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(ancillary), &descriptor, sizeof(int));
    return sendmsg(socket_.get(), &envelope.message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
  }
  // Returns nothing if no descriptor has arrived, and an empty one if this process may open no more
  // files.
  std::optional<FileDescriptor> receive_descriptor() const {
    Envelope envelope;
    if (recvmsg(socket_.get(), &envelope.message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0) return {};
    int descriptor = -1;
    if (const cmsghdr* ancillary = CMSG_FIRSTHDR(&envelope.message))
      std::memcpy(&descriptor, CMSG_DATA(ancillary), sizeof descriptor);
    return FileDescriptor(descriptor);
  }

  void connect(SharedMemoryPeers& peers, int peer, ByteQueue outgoing, ByteQueue incoming) {
    peers_ = &peers;
    peer_ = peer;
    outgoing_ = outgoing;
    incoming_ = incoming;
  }

  const ChannelKind& kind() const override;
  size_t write(std::span<const iovec> pieces) override {
    size_t taken = 0;
    for (const iovec& piece : pieces) {
      const size_t n =
          outgoing_->write({static_cast<const std::byte*>(piece.iov_base), piece.iov_len});
      taken += n;
      if (n < piece.iov_len) break;
    }
    if (taken > 0) peers_->ring_bell(peer_);
    return taken;
  }
  size_t read(std::span<std::byte> bytes) override {
    const size_t n = incoming_->read(bytes);
    if (n > 0) peers_->ring_bell(peer_);
    return n;
  }
  int descriptor() const override { return -1; }
  int socket() const { return socket_.get(); }

 private:
  struct Envelope {  // a message of one byte, with a descriptor
    char byte = 0;
    iovec piece{&byte, 1};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{nullptr, 0, &piece, 1, space, sizeof space, 0};
  };

  const FileDescriptor socket_;
  SharedMemoryPeers* peers_ = nullptr;
  int peer_ = -1;
  std::optional<ByteQueue> outgoing_;
  std::optional<ByteQueue> incoming_;
};

namespace {

constexpr uint32_t kBoardMagic = 0x64424752;
// Two segments of the ring; a few such queues lie in a second-level cache.
constexpr size_t kQueueBytes = 512 << 10;

// The layout of one rank's memory: its control page, its staging area, then one queue to every
// rank.
size_t queue_offset(int peer) {
  return kControlPageBytes + kStagingBytes +
         ByteQueue::footprint(kQueueBytes) * static_cast<size_t>(peer);
}

}  // namespace

// -- handing over, and opening --------------------------------------------------------------------

SharedMemoryPeers::SharedMemoryPeers(FailureDetector& ranks, PeerStreams& streams,
                                     const FileDescriptor& doorbell,
                                     std::vector<SharedMemoryChannel*> channels, Deadline deadline)
    : ranks_(ranks),
      streams_(streams),
      channels_(std::move(channels)),
      rank_(ranks.rank()),
      size_(ranks.size()),
      peers_(channels_.size()) {
  memory_ = SharedMemory::create(queue_offset(size_));
  ControlPage& own = *new (memory_->data()) ControlPage{};
  own.rank = rank_;
  own.size = size_;
  own.queue_capacity = kQueueBytes;
  sched_getaffinity(0, sizeof own.cpus, &own.cpus);
  own.magic = kBoardMagic;
  for (int r = 0; r < size_; ++r) {
    if (!channels_[r]) continue;
    hand_over(r, memory_->descriptor(), deadline);
    hand_over(r, doorbell.get(), deadline);
  }
  memory_->close_descriptor();
}

// A user's descriptors in flight are limited. So this rank receives its own between attempts.
void SharedMemoryPeers::hand_over(int peer, int descriptor, Deadline deadline) {
  while (!channels_[peer]->send_descriptor(descriptor) && !ranks_.has_left(peer)) {
    const int reason = errno;
    ranks_.attend();
    if (deadline.passed())
      ranks_.fail({FailureKind::TimedOut,
                   str("rank ", rank_, " could not hand shared memory to rank ", peer, ": ",
                       std::strerror(reason), "; raise ulimit -n, or use --transport tcp")});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ring_bell(peer);
}

std::optional<FileDescriptor> SharedMemoryPeers::received_from(int peer) {
  auto descriptor = channels_[peer]->receive_descriptor();
  if (descriptor && !*descriptor)
    ranks_.fail({FailureKind::Died,
                 str("rank ", rank_, " may have no more open files, and takes no shared memory ",
                     "from rank ", peer, "; raise ulimit -n, or use --transport tcp")});
  return descriptor;
}

void SharedMemoryPeers::complete(Deadline deadline) {
  for (int r = 0; r < size_; ++r)
    if (channels_[r]) open(r, deadline);
}

// Receives a peer's memory.
void SharedMemoryPeers::open(int peer, Deadline deadline) {
  std::optional<FileDescriptor> memory;
  std::optional<FileDescriptor> doorbell;
  for (;;) {
    const bool has_left = ranks_.has_left(peer);  // what it handed over before is received below
    if (!memory) memory = received_from(peer);
    if (memory) doorbell = received_from(peer);
    if (doorbell) break;
    if (has_left) ranks_.fail_because_left(peer);
    ranks_.attend();
    if (ranks_.has_left(peer)) continue;
    std::vector<pollfd> ready{{channels_[peer]->socket(), POLLIN, 0}};
    ranks_.watch(ready);
    if (poll(ready.data(), ready.size(), deadline.poll_timeout()) == 0)
      ranks_.fail(
          {FailureKind::TimedOut, str("rank ", peer, " did not send its shared memory in time")});
  }
  peers_[peer].memory = SharedMemory::open(std::move(*memory));
  peers_[peer].doorbell = std::move(*doorbell);
  const ControlPage& theirs = control_page(peer);
  CHECK_AS(DistributedError,
           peers_[peer].memory->size() == memory_->size() && theirs.magic == kBoardMagic &&
               theirs.rank == peer && theirs.size == size_ && theirs.queue_capacity == kQueueBytes,
           "transport: rank ", peer, " runs another program or version than rank ", rank_);
  channels_[peer]->connect(*this, peer,
                           ByteQueue(memory_of(rank_) + queue_offset(peer), kQueueBytes),
                           ByteQueue(memory_of(peer) + queue_offset(rank_), kQueueBytes));
}

bool SharedMemoryPeers::all_opened() const {
  return std::count(channels_.begin(), channels_.end(), nullptr) == 1;
}

void SharedMemoryPeers::add_cores(cpu_set_t& cores) const {
  for (int r = 0; r < size_; ++r)
    if (opened(r)) CPU_OR(&cores, &cores, &control_page(r).cpus);
}

std::byte* SharedMemoryPeers::memory_of(int rank) const {
  return rank == rank_ ? memory_->data() : peers_[rank].memory->data();
}

ControlPage& SharedMemoryPeers::control_page(int rank) const {
  return *std::launder(reinterpret_cast<ControlPage*>(memory_of(rank)));
}

SharedSegment SharedMemoryPeers::share(Transport& transport, size_t bytes) {
  ranks_.check_failure();
  SharedSegment segment{++segments_, std::vector<std::shared_ptr<SharedMemory>>(peers_.size())};
  segment.parts[rank_] = SharedMemory::create(bytes);
  for (int r = 0; r < size_; ++r)
    if (opened(r))
      hand_over(r, segment.parts[rank_]->descriptor(), Deadline::after(transport.timeout()));
  segment.parts[rank_]->close_descriptor();
  for (int r = 0; r < size_; ++r) {
    if (!opened(r)) continue;
    // A rank that has handed over its part may leave.
    std::optional<FileDescriptor> part;
    const auto has_come = [&] { return part || (part = received_from(r)); };
    transport.wait_until([&] { return has_come() || ranks_.has_left(r); });
    if (!has_come()) ranks_.fail_because_left(r);
    segment.parts[r] = SharedMemory::open(std::move(*part));
    const size_t own = segment.parts[rank_]->size();
    const size_t theirs = segment.parts[r]->size();
    CHECK_AS(OutOfStepError, own == theirs, "allocate_shared: rank ", rank_, " asks for ", own,
             " bytes, rank ", r, " for ", theirs);
  }
  return segment;
}

// -- doorbells ------------------------------------------------------------------------------------

void SharedMemoryPeers::set_sleeping(bool sleeping) {
  control_page(rank_).sleeping.store(sleeping ? 1 : 0);
}

void SharedMemoryPeers::ring_bell(int peer) {
  if (!opened(peer) || control_page(peer).sleeping.load() == 0 ||
      control_page(peer).sleeping.exchange(0) == 0)
    return;
  eventfd_write(peers_[peer].doorbell.get(), 1);
}

bool SharedMemoryPeers::all_are_at(std::atomic<uint64_t> ControlPage::*count,
                                   uint64_t value) const {
  for (int r = 0; r < size_; ++r)
    if ((r == rank_ || opened(r)) && (control_page(r).*count).load() < value) return false;
  return true;
}

void SharedMemoryPeers::ring_if_complete(std::atomic<uint64_t> ControlPage::*count,
                                         uint64_t value) {
  if (!all_are_at(count, value)) return;
  for (int r = 0; r < size_; ++r) ring_bell(r);
}

void SharedMemoryPeers::wait_for_all(Transport& transport,
                                     std::atomic<uint64_t> ControlPage::*count, uint64_t value) {
  needs_all_ = true;
  transport.wait_until([&] { return all_are_at(count, value); });
  needs_all_ = false;
}

// A rank that has left in good order wrote everything to memory before. (Over TCP its last bytes
// may still be under way, and the end of the stream tells.)
void SharedMemoryPeers::check() {
  const uint64_t mine = ranks_.position().frame.sequence;
  for (int r = 0; r < size_; ++r)
    if (opened(r) && ranks_.has_left(r) &&
        (needs_all_ || streams_.receiving(r) || streams_.sending(r)))
      ranks_.fail_because_left(r);
  for (int r = 0; r < size_; ++r)
    if (mine > 0 && opened(r) && control_page(r).entered.load() == mine)
      compare_control_page(r, mine);
}

// -- who is in which collective -------------------------------------------------------------------

void SharedMemoryPeers::show_position() {
  const Frame& frame = ranks_.position().frame;
  ControlPage& own = control_page(rank_);
  uint64_t words[kFrameBytes / 8];
  std::memcpy(words, &frame, kFrameBytes);
  for (size_t i = 0; i < own.frame.size(); ++i)
    own.frame[i].store(words[i], std::memory_order_relaxed);
  own.fingerprint.store(fingerprint(frame), std::memory_order_relaxed);
  own.entered.store(frame.sequence);
  ring_if_complete(&ControlPage::entered, frame.sequence);
}

// Throws unless the frame that `rank` shows for collective number `sequence` agrees with this
// rank's. There is nothing to compare if `rank` has gone on to the next collective. `rank` may be
// writing its next frame right now; a mixture of two frames has the fingerprint of neither.
void SharedMemoryPeers::compare_control_page(int rank, uint64_t sequence) {
  const ControlPage& theirs = control_page(rank);
  uint64_t words[kFrameBytes / 8];
  for (size_t i = 0; i < theirs.frame.size(); ++i)
    words[i] = theirs.frame[i].load(std::memory_order_relaxed);
  Frame frame;
  std::memcpy(&frame, words, kFrameBytes);
  if (frame.sequence == sequence && fingerprint(frame) == theirs.fingerprint.load())
    ranks_.compare(frame, rank);
}

void SharedMemoryPeers::check_entered() {
  const ControlPage& own = control_page(rank_);
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && !opened(r)) continue;
    const uint64_t sequence = control_page(r).entered.load();
    if (sequence != ranks_.position().frame.sequence ||
        control_page(r).fingerprint.load() != own.fingerprint.load())
      compare_control_page(r, sequence);
  }
}

// -- the transport --------------------------------------------------------------------------------

namespace {

ChannelOffer offer_shm(const std::string& /*host*/) {
  // The name must only be unique; the handshake keeps other programs out.
  std::random_device random;
  std::string name = str("ringgrad-", random(), '-', random(), '-', random(), '-', random());
  FileDescriptor listener = listen_local(name);
  return {std::move(name), std::move(listener)};
}

constinit const ChannelKind shm_kind{
    .name = "shm",
    .reach = Reach::Memory,
    .preference = 2,
    .offer = offer_shm,
    .dial = connect_local,
    .open = [](FileDescriptor connection) -> std::unique_ptr<Channel> {
      return std::make_unique<SharedMemoryChannel>(std::move(connection));
    }};

std::unique_ptr<LocalPeers> find_peers(FailureDetector& ranks, PeerStreams& streams,
                                       const FileDescriptor& doorbell, Deadline deadline) {
  std::vector<SharedMemoryChannel*> channels(static_cast<size_t>(ranks.size()));
  for (int r = 0; r < ranks.size(); ++r)
    if (r != ranks.rank()) channels[r] = dynamic_cast<SharedMemoryChannel*>(&streams.channel(r));
  // A rank that is alone still needs memory of its own.
  if (std::count(channels.begin(), channels.end(), nullptr) == std::max(2, ranks.size())) return {};
  return std::make_unique<SharedMemoryPeers>(ranks, streams, doorbell, std::move(channels),
                                             deadline);
}

BEFORE_MAIN(shared_memory, find_local_peers = find_peers; register_channel(shm_kind));

}  // namespace

const ChannelKind& SharedMemoryChannel::kind() const { return shm_kind; }

SharedMemoryPeers& memory_of(Transport& transport) {
  return static_cast<SharedMemoryPeers&>(*transport.local_peers());
}

}  // namespace ringgrad
