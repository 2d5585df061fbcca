// The control connection that every pair of ranks has beside the way of its data.
//
// Data streams may be full, or stuck in the middle of a message, when something goes wrong. The
// control connection carries only a few short messages, so it is free whenever a rank has to say
// why it gives up; and the kernel closes it when a process dies, however it dies, which wakes every
// rank that polls it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ringgrad/distributed/failure.h"
#include "ringgrad/distributed/os/file_descriptor.h"

namespace ringgrad {

enum class ControlKind : uint8_t {
  // The sender leaves in good order.
  Goodbye,
  // The sender gives the group up; failure and text say why.
  Failed,
  // The question: where are you? With a text: and who answers you?
  Query,
  // The answer. text: the frame of the collective that the sender has entered last, the ranks that
  // have not answered it, a line end, then words.
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

  // REQUIRES: a connected stream socket.
  explicit ControlLink(FileDescriptor socket);

  // Never waits: false, with errno, where the socket's buffer has no room (the peer has been
  // stopped for long). A broken connection is noticed when receiving. Longer texts are cut.
  bool send(const ControlMessage& message) noexcept;

  // The next message that has arrived whole. Nonsense counts as a closed connection.
  std::optional<ControlMessage> receive();

  bool closed() const { return closed_; }  // by the peer, or by its death; nothing more will arrive
  int descriptor() const { return socket_.get(); }

 private:
  void read_available();

  FileDescriptor socket_;
  std::string buffer_;
  bool closed_ = false;
};

// Whether what has arrived on a TCP connection, and nobody has read yet, ends with a goodbye.
bool ends_with_goodbye(const FileDescriptor& socket);

}  // namespace ringgrad
