// Channel: one end of a stream of bytes between two ranks. It takes the bytes that fit, gives the
// bytes that have arrived, and never waits. Transport builds whole messages, and waiting, on top.
//
// ChannelKind: a transport. Its own file registers it, and everything else uses the list:
// connecting, the values of --transport, the name of a link in errors, and the choice of checksums.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/distributed/os/file_descriptor.h"

namespace ringgrad {

class Channel;

// The scope that two ranks must share to be connected in this way.
enum class Reach : uint8_t {
  // Both see the same memory.
  Memory,
  // Both run on the same machine.
  Machine,
  // They share nothing but a network. It may flip bits, so Checksums::Auto adds a CRC.
  Network,
};

// The way in which other ranks reach this one.
struct ChannelOffer {
  std::string address;      // the argument of dial(): one line of at most 300 bytes
  FileDescriptor listener;  // a stream socket that accepts what dial() connects
};

struct ChannelKind {
  const char* name;  // "tcp": its name for users, in --transport and errors
  Reach reach;
  int preference;  // `auto` takes the largest that a pair of ranks has; 0: used only by name

  // `host` is the address under which other machines reach this rank. Throws DistributedError if
  // this machine lacks the transport.
  ChannelOffer (*offer)(const std::string& host);
  // Returns a connected stream socket. It first serves the handshake, and then becomes a control
  // connection or the argument of open(). Throws TimeoutError or DistributedError.
  FileDescriptor (*dial)(const std::string& address, Deadline deadline);
  // Both ends call it, on the connection that dial() has made and the listener has accepted.
  std::unique_ptr<Channel> (*open)(FileDescriptor connection);
};

// The file that implements the kind calls it before main. `kind` must outlive the program's ranks.
void register_channel(const ChannelKind& kind);
// Returns the kinds that this program has, first those that `auto` prefers, then by name.
const std::vector<const ChannelKind*>& channel_kinds();
// Returns nullptr if this program has no kind of that name.
const ChannelKind* find_channel_kind(const std::string& name);

// The stream has ended or broken; `how` says which.
struct ChannelClosed {
  std::string how;
};

class Channel {
 public:
  virtual ~Channel() = default;
  virtual const ChannelKind& kind() const = 0;

  // Takes bytes from the pieces, in order, and returns their number; 0 if the stream is full. Bytes
  // that were taken arrive without another call. After a partial write the caller
  // offers the same rest again, perhaps with more behind it. Throws ChannelClosed.
  virtual size_t write(std::span<const iovec> pieces) = 0;
  // Fills the front of `bytes`, and returns the number of bytes; 0 if none has arrived. Throws
  // ChannelClosed.
  virtual size_t read(std::span<std::byte> bytes) = 0;

  // Returns the descriptor, polled for POLLIN while a message is expected and for POLLOUT while one
  // is queued. Returns -1 if the peer's write() wakes this rank through its doorbell instead
  // (shared_memory/shared_memory_peers.h).
  virtual int descriptor() const = 0;
};

}  // namespace ringgrad
