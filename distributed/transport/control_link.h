// The control connection, which every pair of ranks has beside its data channel.
//
// When something goes wrong, data streams may be full, or stop in the middle of a message. The
// control connection carries only a few short messages, so a rank can always say on it why it gives
// up. If a process dies, however it dies, the kernel closes the connection, which wakes every rank
// that polls it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ringgrad/distributed/failure.h"
#include "ringgrad/distributed/os/file_descriptor.h"

namespace ringgrad {

enum class ControlKind : uint8_t {
  // The sender is connected with all ranks. It is the first message, unless the sender fails.
  Connected,
  // The sender leaves in good order.
  Goodbye,
  // The sender gives the group up. `failure` and `text` say why.
  Failed,
  // Asks for the receiver's position. If it has a text, it also asks which ranks answer the
  // receiver.
  Query,
  // The answer to Query. Its text is the frame of the collective that the sender has entered last,
  // the ranks that have not answered the sender, a line end, then words for the collective.
  Position,
};

struct ControlMessage {
  ControlKind kind;
  FailureKind failure = FailureKind::Died;
  std::string text = {};
};

class ControlLink {
 public:
  static constexpr size_t kMaxText = 4096;

  // A connected stream socket, or none.
  ControlLink(FileDescriptor socket = {}) : socket_(std::move(socket)) {}

  // Never waits. Returns false if there is no connection, or if the socket's buffer is full because
  // the peer has been stopped for long. A broken connection shows in receive(). Long texts are cut.
  bool send(const ControlMessage& message) noexcept;

  // Returns the next message that has arrived completely. An invalid message counts as a closed
  // connection.
  std::optional<ControlMessage> receive();

  bool closed() const { return closed_; }  // the peer closed it or died; nothing more will arrive
  const FileDescriptor& socket() const { return socket_; }

 private:
  void read_available();

  FileDescriptor socket_;
  std::string buffer_;
  bool closed_ = false;
};

}  // namespace ringgrad
