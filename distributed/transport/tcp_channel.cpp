// The transport "tcp": a connected TCP socket.
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/os/socket.h"
#include "ringgrad/distributed/transport/channel.h"

namespace ringgrad {
namespace {

constexpr size_t kReadAhead = 4096;
extern const ChannelKind tcp_kind;

class TcpChannel final : public Channel {
 public:
  explicit TcpChannel(FileDescriptor socket) : socket_(std::move(socket)), ahead_(kReadAhead) {}

  const ChannelKind& kind() const override { return tcp_kind; }
  size_t write(std::span<const iovec> pieces) override;
  size_t read(std::span<std::byte> bytes) override;
  int descriptor() const override { return socket_.get(); }

 private:
  size_t receive(std::byte* to, size_t capacity);

  FileDescriptor socket_;
  // A header and a small payload arrive together, so reading ahead saves the second system call.
  // Large reads bypass this buffer.
  std::vector<std::byte> ahead_;
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
};

// Returns how many bytes a system call has moved, 0 if it would have had to wait.
size_t moved(ssize_t result) {
  if (result >= 0) return static_cast<size_t>(result);
  if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS) return 0;
  throw ChannelClosed{std::strerror(errno)};
}

size_t TcpChannel::write(std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  return moved(sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

size_t TcpChannel::receive(std::byte* to, size_t capacity) {
  const ssize_t received = recv(socket_.get(), to, capacity, MSG_DONTWAIT);
  if (received == 0) throw ChannelClosed{"end of stream"};
  return moved(received);
}

size_t TcpChannel::read(std::span<std::byte> bytes) {
  if (ahead_begin_ == ahead_end_) {
    if (bytes.size() >= kReadAhead) return receive(bytes.data(), bytes.size());
    ahead_begin_ = ahead_end_ = 0;
    ahead_end_ = receive(ahead_.data(), ahead_.size());
  }
  const size_t n = std::min(bytes.size(), ahead_end_ - ahead_begin_);
  if (n > 0) std::memcpy(bytes.data(), ahead_.data() + ahead_begin_, n);
  ahead_begin_ += n;
  return n;
}

ChannelOffer offer_tcp(const std::string& host) {
  FileDescriptor listener = listen_tcp({host, 0}, IfForeign::ListenOnAll);
  const auto port = local_address(listener).port;
  // The scope of an address (fe80::1%eth0) means something on this machine only.
  return {str(host.substr(0, host.find('%')), ' ', port), std::move(listener)};
}

FileDescriptor dial_tcp(const std::string& address, Deadline deadline) {
  const size_t space = address.rfind(' ');
  const auto port =
      space == std::string::npos ? std::nullopt : parse_number<uint16_t>(address.substr(space + 1));
  CHECK_AS(DistributedError, port, "tcp: '", address,
           "' is a damaged address, expected a host and a port");
  return connect_tcp({address.substr(0, space), *port}, deadline, IfRefused::Fail);
}

constinit const ChannelKind tcp_kind{
    .name = "tcp",
    .reach = Reach::Network,
    .preference = 1,
    .offer = offer_tcp,
    .dial = dial_tcp,
    .open = [](FileDescriptor connection) -> std::unique_ptr<Channel> {
      return std::make_unique<TcpChannel>(std::move(connection));
    }};
BEFORE_MAIN(tcp_channel, register_channel(tcp_kind));

}  // namespace
}  // namespace ringgrad
