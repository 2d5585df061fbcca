// The transport "shm": two queues in memory that both ranks see.
#include <optional>
#include <random>
#include <utility>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/distributed/os/socket.h"
#include "ringgrad/distributed/transport/shared_memory_peers.h"

namespace ringgrad {
namespace {

extern const ChannelKind shm_kind;

class SharedMemoryChannel final : public Channel {
 public:
  const ChannelKind& kind() const override { return shm_kind; }
  void complete(SharedMemoryPeers& memory, int peer, Deadline deadline) override {
    queues_ = memory.open(peer, deadline);
  }
  size_t write(std::span<const iovec> pieces) override {
    size_t taken = 0;
    for (const iovec& piece : pieces) {
      const size_t n =
          queues_->outgoing.write({static_cast<const std::byte*>(piece.iov_base), piece.iov_len});
      taken += n;
      if (n < piece.iov_len) break;
    }
    return taken;
  }
  size_t read(std::span<std::byte> bytes) override { return queues_->incoming.read(bytes); }
  int descriptor() const override { return -1; }

 private:
  std::optional<QueuePair> queues_;
};

ChannelOffer offer_shm(const std::string& /*host*/) {
  std::random_device random;  // only to be no other socket's: the handshake keeps strangers away
  std::string name = str("ringgrad-", random(), '-', random(), '-', random(), '-', random());
  FileDescriptor listener = listen_local(name);
  return {std::move(name), std::move(listener)};
}

constinit const ChannelKind shm_kind{.name = "shm",
                                     .reach = Reach::Memory,
                                     .preference = 2,
                                     .offer = offer_shm,
                                     .dial = connect_local,
                                     .open = [](FileDescriptor) -> std::unique_ptr<Channel> {
                                       return std::make_unique<SharedMemoryChannel>();
                                     }};
BEFORE_MAIN(shared_memory_channel, register_channel(shm_kind));

}  // namespace
}  // namespace ringgrad
