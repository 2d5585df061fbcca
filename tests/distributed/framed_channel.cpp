// A transport of the tests, in this one file: "framed", between ranks of one machine. Its stream is
// cut into frames, each with its length and a checksum of its own, over a Unix socket. That it
// registers itself is all that the rest of ringgrad knows of it; `auto` leaves it alone.
#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/text.h"
#include "ringgrad/distributed/checksums/crc32c.h"
#include "ringgrad/distributed/shared_memory/local_socket.h"
#include "ringgrad/distributed/transport/channel.h"

namespace ringgrad {
namespace {

constexpr size_t kMostInFrame = 10'000;
extern const ChannelKind framed_kind;

struct FrameStart {
  uint32_t length;
  uint32_t crc;  // the checksum of the bytes that follow
};

class FramedChannel final : public Channel {
 public:
  explicit FramedChannel(FileDescriptor socket) : socket_(std::move(socket)) {
    fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
  }
  const ChannelKind& kind() const override { return framed_kind; }
  int descriptor() const override { return socket_.get(); }

  // Sends one frame, or goes on with it. Its bytes are still the front of the pieces.
  size_t write(std::span<const iovec> pieces) override {
    if (start_left_ == 0 && payload_left_ == 0) begin_frame(pieces);
    std::vector<iovec> out;
    if (start_left_ > 0)
      out.push_back(
          {reinterpret_cast<std::byte*>(&start_) + sizeof start_ - start_left_, start_left_});
    size_t left = payload_left_;
    for (const iovec& piece : pieces) {
      out.push_back({piece.iov_base, std::min(left, piece.iov_len)});
      left -= out.back().iov_len;
    }
    msghdr message{};
    message.msg_iov = out.data();
    message.msg_iovlen = out.size();
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return none_or_closed();
    const size_t of_start = std::min(start_left_, static_cast<size_t>(sent));
    start_left_ -= of_start;
    payload_left_ -= static_cast<size_t>(sent) - of_start;
    return static_cast<size_t>(sent) - of_start;
  }

  // Gives the rest of a frame that has come whole and is undamaged.
  size_t read(std::span<std::byte> bytes) override {
    while (given_ == payload_.size()) {
      if (!receive_frame()) return 0;
    }
    const size_t n = std::min(bytes.size(), payload_.size() - given_);
    if (n > 0) std::memcpy(bytes.data(), payload_.data() + given_, n);
    given_ += n;
    return n;
  }

 private:
  void begin_frame(std::span<const iovec> pieces) {
    std::vector<std::byte> payload;
    for (const iovec& piece : pieces) {
      const auto* begin = static_cast<const std::byte*>(piece.iov_base);
      payload.insert(payload.end(), begin,
                     begin + std::min(piece.iov_len, kMostInFrame - payload.size()));
    }
    if (payload.empty()) return;
    start_ = {static_cast<uint32_t>(payload.size()), crc32c(payload.data(), payload.size())};
    start_left_ = sizeof start_;
    payload_left_ = payload.size();
  }

  // Returns true if all of the next frame has come.
  bool receive_frame() {
    while (arrived_.size() < sizeof(FrameStart))
      if (!receive(sizeof(FrameStart))) return false;
    FrameStart start;
    std::memcpy(&start, arrived_.data(), sizeof start);
    if (start.length == 0 || start.length > kMostInFrame) throw ChannelClosed{"a damaged frame"};
    while (arrived_.size() < sizeof start + start.length)
      if (!receive(sizeof start + start.length)) return false;
    payload_.assign(arrived_.begin() + sizeof start, arrived_.end());
    given_ = 0;
    arrived_.clear();
    if (crc32c(payload_.data(), payload_.size()) != start.crc)
      throw ChannelClosed{"a damaged frame"};
    return true;
  }

  // Receives until `size` bytes of the frame have arrived; false: nothing is there.
  bool receive(size_t size) {
    const size_t before = arrived_.size();
    arrived_.resize(size);
    const ssize_t n = recv(socket_.get(), arrived_.data() + before, size - before, MSG_DONTWAIT);
    arrived_.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n == 0) throw ChannelClosed{"end of stream"};
    if (n < 0) none_or_closed();
    return n > 0;
  }

  static size_t none_or_closed() {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS) return 0;
    throw ChannelClosed{std::strerror(errno)};
  }

  FileDescriptor socket_;
  FrameStart start_{};  // the frame that is being sent, and its remaining bytes
  size_t start_left_ = 0;
  size_t payload_left_ = 0;
  // of the frame that is coming, and of the last one
  std::vector<std::byte> arrived_;
  std::vector<std::byte> payload_;
  size_t given_ = 0;  // bytes of payload_
};

ChannelOffer offer_framed(const std::string& /*host*/) {
  std::random_device random;
  std::string name = str("ringgrad-framed-", random(), '-', random(), '-', random());
  FileDescriptor listener = listen_local(name);
  return {std::move(name), std::move(listener)};
}

constinit const ChannelKind framed_kind{
    .name = "framed",
    .reach = Reach::Machine,
    .preference = 0,
    .offer = offer_framed,
    .dial = connect_local,
    .open = [](FileDescriptor connection) -> std::unique_ptr<Channel> {
      return std::make_unique<FramedChannel>(std::move(connection));
    }};
BEFORE_MAIN(framed_channel, register_channel(framed_kind));

}  // namespace
}  // namespace ringgrad
