#include "ringgrad/distributed/transport/control_link.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace ringgrad {
namespace {

struct Header {
  uint32_t magic;
  ControlKind kind;
  FailureKind failure;
  uint16_t text_length;
};
static_assert(sizeof(Header) == 8);
constexpr uint32_t kControlMagic = 0x72674374;

bool sensible(const Header& header) {
  return header.magic == kControlMagic && header.kind <= ControlKind::Position &&
         header.failure <= FailureKind::Failed && header.text_length <= ControlLink::kMaxText;
}

}  // namespace

bool ControlLink::send(const ControlMessage& message) noexcept {
  if (closed_ || !socket_) return false;
  char bytes[sizeof(Header) + kMaxText];
  const size_t length = std::min(message.text.size(), kMaxText);
  const Header header{kControlMagic, message.kind, message.failure, static_cast<uint16_t>(length)};
  std::memcpy(bytes, &header, sizeof header);
  std::memcpy(bytes + sizeof header, message.text.data(), length);

  const size_t size = sizeof header + length;
  const ssize_t sent = ::send(socket_.get(), bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  // After half a message all later ones would be unreadable. The connection is closed instead.
  if (sent >= 0 && static_cast<size_t>(sent) < size) shutdown(socket_.get(), SHUT_WR);
  return sent >= 0;
}

void ControlLink::read_available() {
  char bytes[4096];
  for (;;) {
    const ssize_t n = recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      closed_ = true;
      return;
    }
    buffer_.append(bytes, static_cast<size_t>(n));
  }
}

std::optional<ControlMessage> ControlLink::receive() {
  if (!closed_ && socket_) read_available();
  Header header;
  if (buffer_.size() < sizeof header) return {};
  std::memcpy(&header, buffer_.data(), sizeof header);
  if (!sensible(header)) {
    buffer_.clear();
    closed_ = true;
    return {};
  }
  if (buffer_.size() < sizeof header + header.text_length) return {};
  ControlMessage message{header.kind, header.failure,
                         buffer_.substr(sizeof header, header.text_length)};
  buffer_.erase(0, sizeof header + header.text_length);
  return message;
}

}  // namespace ringgrad
