#include "ringgrad/distributed/os/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"

namespace ringgrad {

namespace {

constexpr int kBacklog = 128;
constexpr std::chrono::milliseconds kRetry{1};  // while the listener is not there yet
// After so many seconds of silence the kernel probes the other end, because firewalls forget silent
// connections. It goes on probing for longer than any timeout.
constexpr int kSilence = 5;
constexpr int kMostQuestions = 127;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const Address& address) {
  addrinfo hints{};
  addrinfo* result = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &result);
  CHECK_AS(NetworkError, error == 0, "cannot find host '", address.host,
           "': ", gai_strerror(error));
  return {result, freeaddrinfo};
}

// Returns 0, or the errno of the failed attempt.
int try_connect(const FileDescriptor& socket, const sockaddr* address, socklen_t length,
                Deadline deadline) {
  const int flags = fcntl(socket.get(), F_GETFL);
  fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK);
  int error = connect(socket.get(), address, length) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) {
    pollfd ready{socket.get(), POLLOUT, 0};
    if (poll(&ready, 1, deadline.poll_timeout()) <= 0) return ETIMEDOUT;
    socklen_t size = sizeof error;
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  fcntl(socket.get(), F_SETFL, flags);
  return error;
}

// The address of an end of a socket, getsockname's or getpeername's, numeric; nothing of a Unix
// socket.
std::optional<Address> address_of(int (*end)(int, sockaddr*, socklen_t*),
                                  const FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  const bool known = end(socket.get(), raw, &length) == 0 && address.ss_family != AF_UNIX &&
                     getnameinfo(raw, length, host, sizeof host, port, sizeof port,
                                 NI_NUMERICHOST | NI_NUMERICSERV) == 0;
  if (!known) return {};
  return Address{host, parse_number<uint16_t>(port).value_or(0)};
}

[[noreturn]] void throw_cannot_listen(const Address& address) {
  const int reason = errno;
  const std::string what = str("cannot listen on ", to_string(address), ": ");
  if (reason == EADDRINUSE)
    throw AddressInUseError(str(what, "the port is taken by ",
                                port_owner ? port_owner(address.port) : "another program",
                                "; choose another one"));
  if (reason == EADDRNOTAVAIL)
    throw EnvironmentError(str(
        what, "this machine does not have that address. MASTER_ADDR (--master-addr) is rank 0's, ",
        "which starts there (--node-rank 0)"));
  throw DistributedError(what + std::strerror(reason));
}

// Polls until the socket is ready, then lets transfer() move some bytes; 0 of them is the end of
// the stream.
template <class Transfer>
void move_all(const FileDescriptor& socket, size_t size, short event, Deadline deadline,
              const char* peer, Transfer transfer) {
  for (size_t done = 0; done < size;) {
    pollfd ready{socket.get(), event, 0};
    const int polled = poll(&ready, 1, deadline.poll_timeout());
    CHECK_AS(TimeoutError, polled != 0, "no answer from ", peer, " in time");
    const ssize_t n = transfer(done);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    CHECK_AS(ConnectionLostError, n > 0, "the connection with ", peer,
             " broke: ", n == 0 ? "end of stream" : std::strerror(errno));
    done += static_cast<size_t>(n);
  }
}

}  // namespace

FileDescriptor new_tcp_socket(int family, int flags) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!socket && errno != EMFILE && errno != ENFILE) return socket;
  check_opened<DistributedError>(socket, "no socket");
  socket.keep_from_forks();
  const auto set = [&](int level, int option, int value) {
    setsockopt(socket.get(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kSilence);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kSilence);
  set(IPPROTO_TCP, TCP_KEEPCNT, kMostQuestions);
  return socket;
}

// A client that tries a free port of the ephemeral range again and again may get that very port as
// its own. Then it is connected with itself (TCP's simultaneous open).
bool connected_with_itself(const FileDescriptor& socket) {
  const auto other = address_of(getpeername, socket);
  return other && to_string(*other) == to_string(local_address(socket));
}

std::string to_string(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return str(v6 ? "[" : "", address.host, v6 ? "]" : "", ":", address.port);
}

FileDescriptor bind_tcp(const Address& address, IfForeign foreign) {
  const Addresses found = resolve(address);
  FileDescriptor socket = new_tcp_socket(found->ai_family);
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(socket.get(), found->ai_addr, found->ai_addrlen) == 0) return socket;
  if (errno != EADDRNOTAVAIL || foreign == IfForeign::Fail) throw_cannot_listen(address);
  return bind_tcp({found->ai_family == AF_INET6 ? "::" : "0.0.0.0", address.port});
}

std::vector<FileDescriptor> listen_on_all_of(const Address& address, IfForeign foreign) {
  std::vector<FileDescriptor> listeners;
  if (networks) listeners = networks->listen(address);
  if (listeners.empty()) listeners.push_back(listen_tcp(address, foreign));
  return listeners;
}

FileDescriptor listen_tcp(const Address& address, IfForeign foreign) {
  FileDescriptor socket = bind_tcp(address, foreign);
  if (listen(socket.get(), kBacklog) != 0) throw_cannot_listen(address);
  return socket;
}

Address local_address(const FileDescriptor& socket) {
  const auto address = address_of(getsockname, socket);
  CHECK_AS(DistributedError, address, "getsockname: ", std::strerror(errno));
  return *address;
}

std::string host_at_other_end(const FileDescriptor& socket) {
  const auto address = address_of(getpeername, socket);
  return address ? address->host : "this machine";
}

bool is_numeric(const std::string& host) {
  in6_addr address;  // room for either
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

FileDescriptor connect_tcp(const Address& address, Deadline deadline, IfRefused refused) {
  if (networks) return networks->connect(address, deadline, refused);
  for (const Addresses found = resolve(address);;) {
    FileDescriptor socket = new_tcp_socket(found->ai_family);
    const int error = try_connect(socket, found->ai_addr, found->ai_addrlen, deadline);
    if (error == 0 && !connected_with_itself(socket)) return socket;
    CHECK_AS(DistributedError, refused == IfRefused::TryAgain || error != ECONNREFUSED,
             "nobody listens any more at ", to_string(address));
    CHECK_AS(TimeoutError, !deadline.passed(), "nobody answers at ", to_string(address), ": ",
             std::strerror(error));
    std::this_thread::sleep_for(kRetry);
  }
}

void abandon(const FileDescriptor& socket) {
  const linger at_once{1, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

void give_up_after(const FileDescriptor& socket, std::chrono::milliseconds silence) {
  const auto milliseconds = static_cast<unsigned>(silence.count());
  setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
}

void write_all(const FileDescriptor& socket, std::span<const std::byte> bytes, Deadline deadline,
               const char* peer) {
  move_all(socket, bytes.size(), POLLOUT, deadline, peer, [&](size_t done) {
    return ::send(socket.get(), bytes.data() + done, bytes.size() - done,
                  MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

void read_all(const FileDescriptor& socket, std::span<std::byte> bytes, Deadline deadline,
              const char* peer) {
  move_all(socket, bytes.size(), POLLIN, deadline, peer, [&](size_t done) {
    return ::recv(socket.get(), bytes.data() + done, bytes.size() - done, MSG_DONTWAIT);
  });
}

}  // namespace ringgrad
