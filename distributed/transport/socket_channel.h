// A Channel over a connected TCP socket.
#pragma once

#include <vector>

#include "ringgrad/distributed/os/file_descriptor.h"
#include "ringgrad/distributed/transport/channel.h"

namespace ringgrad {

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

}  // namespace ringgrad
