// Channel: one end of a stream of bytes between two ranks. It takes what fits, gives what is there,
// and never waits. A Transport makes whole messages and waiting out of it.
//
// ChannelKind: a transport, as its own file registers it. Everything else goes through the list of
// them: connecting, what --transport may say, what errors call a link, whether messages carry
// checksums.
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

// What two ranks must have in common to be connected so.
enum class Reach : uint8_t {
  // Memory that both see.
  Memory,
  // The machine.
  Machine,
  // Nothing. The network may flip bits, so Checksums::Auto adds a CRC to what goes this way.
  Network,
};

// How other ranks come to this one.
struct ChannelOffer {
  std::string address;      // what dial() needs: one line of at most 300 bytes
  FileDescriptor listener;  // a stream socket that accepts what dial() connects
};

struct ChannelKind {
  const char* name;  // "tcp": for people, --transport and errors
  Reach reach;
  int preference;  // `auto` takes the largest that a pair of ranks has; 0: taken by name only

  // `host`: where other machines reach this rank. Throws DistributedError where this machine lacks
  // the transport.
  ChannelOffer (*offer)(const std::string& host);
  // A connected stream socket. It serves the handshake first, and then as a control connection or
  // for open(). Throws TimeoutError or DistributedError.
  FileDescriptor (*dial)(const std::string& address, Deadline deadline);
  // Both ends call it on the connection that dial() made and the listener accepted.
  std::unique_ptr<Channel> (*open)(FileDescriptor connection);
};

// Called before main by the file that implements the kind, which must outlive the program's ranks.
void register_channel(const ChannelKind& kind);
// Those that this program has, the ones that `auto` prefers first, then by name.
const std::vector<const ChannelKind*>& channel_kinds();
// nullptr where this program has none of that name.
const ChannelKind* find_channel_kind(const std::string& name);

// The stream has ended or broken; `how` says which.
struct ChannelClosed {
  std::string how;
};

class Channel {
 public:
  virtual ~Channel() = default;
  virtual const ChannelKind& kind() const = 0;

  // Takes bytes from the pieces, in order, and returns how many; 0 when the stream is full. Bytes
  // that are taken arrive without another call. The next call begins with the first byte that was
  // not taken, and offers at least what this one did. Throws ChannelClosed.
  virtual size_t write(std::span<const iovec> pieces) = 0;
  // Fills the front of `bytes`, and returns how much; 0 when nothing has arrived. Throws
  // ChannelClosed.
  virtual size_t read(std::span<std::byte> bytes) = 0;

  // What to poll for readiness, or -1 where the peer rings a doorbell instead.
  virtual int descriptor() const = 0;
};

}  // namespace ringgrad
