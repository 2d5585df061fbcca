#include "ringgrad/distributed/transport/channel.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace ringgrad {

constexpr size_t kReadAhead = 4096;

SocketChannel::SocketChannel(FileDescriptor socket) : socket_(std::move(socket)), ahead_(kReadAhead) {
  fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
}

size_t SocketChannel::write(std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  const ssize_t sent = sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS) return 0;
  throw ChannelClosed{std::strerror(errno)};
}

size_t SocketChannel::receive(std::byte* to, size_t capacity) {
  const ssize_t received = recv(socket_.get(), to, capacity, MSG_DONTWAIT);
  if (received > 0) return static_cast<size_t>(received);
  if (received == 0) throw ChannelClosed{"end of stream"};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  throw ChannelClosed{std::strerror(errno)};
}

size_t SocketChannel::read(std::span<std::byte> bytes) {
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

}  // namespace ringgrad
