// An HTTP server on this machine whose answers a test decides, byte by byte.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace ringgrad::test {

// Answers each connection with `serve`, one after the other, until destroyed. The path of a request
// for the bytes from 7 on ends with "@7".
class LoopbackServer {
 public:
  using Serve = std::function<void(int connection, const std::string& path)>;
  explicit LoopbackServer(Serve serve)
      : serve_(std::move(serve)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(listener_, 8) != 0)
      throw std::runtime_error("no loopback server");
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~LoopbackServer() {
    stop_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + "/" + path;
  }
  int requests() const { return requests_; }

 private:
  void run() {
    while (!stop_) {
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection < 0) continue;
      char request[4096];
      const ssize_t count = ::recv(connection, request, sizeof request, 0);
      const std::string text(request, static_cast<size_t>(std::max<ssize_t>(count, 0)));
      ++requests_;
      const size_t range = text.find("Range: bytes=");
      const std::string from =
          range == std::string::npos
              ? ""
              : "@" + text.substr(range + 13, text.find('-', range) - range - 13);
      if (text.starts_with("GET /"))
        serve_(connection, text.substr(5, text.find(' ', 5) - 5) + from);
      ::close(connection);
    }
  }

  Serve serve_;
  int listener_;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int> requests_{0};
  std::thread thread_;
};

inline bool send_all(int connection, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = ::send(connection, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (count <= 0) return false;
    at += static_cast<size_t>(count);
  }
  return true;
}

inline std::string ok(size_t length) {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(length) + "\r\n\r\n";
}
inline std::string redirect(const std::string& to) {
  return "HTTP/1.1 302 Found\r\nLocation: " + to + "\r\nContent-Length: 0\r\n\r\n";
}

}  // namespace ringgrad::test
