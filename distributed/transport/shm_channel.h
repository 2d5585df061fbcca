// A Channel over two queues in shared memory.
#pragma once

#include "ringgrad/distributed/transport/byte_queue.h"
#include "ringgrad/distributed/transport/channel.h"

namespace ringgrad {

class ShmChannel final : public Channel {
 public:
  ShmChannel(ByteQueue outgoing, ByteQueue incoming) : outgoing_(outgoing), incoming_(incoming) {}

  const char* name() const override { return "shm"; }
  size_t write(std::span<const iovec> pieces) override {
    size_t taken = 0;
    for (const iovec& piece : pieces) {
      const size_t n = outgoing_.write({static_cast<const std::byte*>(piece.iov_base), piece.iov_len});
      taken += n;
      if (n < piece.iov_len) break;
    }
    return taken;
  }
  size_t read(std::span<std::byte> bytes) override { return incoming_.read(bytes); }
  int descriptor() const override { return -1; }

 private:
  ByteQueue outgoing_, incoming_;
};

}  // namespace ringgrad
