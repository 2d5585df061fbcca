// One end of a stream of bytes between two ranks, as an operating system sees it: takes what fits, gives what is there,
// never waits. A Transport makes whole messages and waiting out of it.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>

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

}  // namespace ringgrad
