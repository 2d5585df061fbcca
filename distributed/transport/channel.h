// One end of a stream of bytes between two ranks, as an operating system sees it: takes what fits, gives what is there,
// never waits. A Transport makes whole messages and waiting out of it.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ringgrad/distributed/os/file_descriptor.h"
#include "ringgrad/distributed/transport/byte_queue.h"

namespace ringgrad {

// The stream has ended or broken; `how` says which.
struct ChannelClosed {
  std::string how;
};

class Channel {
 public:
  virtual ~Channel() = default;
  virtual const char* name() const = 0;  // "tcp", "shm"

  // Takes bytes from the pieces, in order, and returns how many; 0 when the stream is full. Throws ChannelClosed.
  virtual size_t write(std::span<const iovec> pieces) = 0;
  // Fills the front of `bytes`, and returns how much; 0 when nothing has arrived. Throws ChannelClosed.
  virtual size_t read(std::span<std::byte> bytes) = 0;

  // What to poll for readiness, or -1 where the peer rings a doorbell instead.
  virtual int descriptor() const = 0;
};

// A Channel over a connected TCP socket.
class SocketChannel final : public Channel {
 public:
  explicit SocketChannel(FileDescriptor socket);

  const char* name() const override { return "tcp"; }
  size_t write(std::span<const iovec> pieces) override;
  size_t read(std::span<std::byte> bytes) override;
  int descriptor() const override { return socket_.get(); }

 private:
  size_t receive(std::byte* to, size_t capacity);

  FileDescriptor socket_;
  // A header and a small payload arrive together: reading ahead saves the second system call. Large reads bypass it.
  std::vector<std::byte> ahead_;
  size_t ahead_begin_ = 0, ahead_end_ = 0;
};

// A Channel over two queues in shared memory.
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
