// Connecting over networks: names that a server knows, hosts of several addresses, segments that
// are lost.
#include "ringgrad/distributed/networks/networks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <set>
#include <thread>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/text.h"
#include "ringgrad/distributed/os/socket.h"

namespace ringgrad {
namespace {

// The first pause between attempts while no process listens yet, and the longest one. The longest
// one also follows a name that is not known yet (Kubernetes announces names of pods late).
constexpr std::chrono::milliseconds kRetry{1};
constexpr std::chrono::milliseconds kLongestRetry{50};
// Used if the caller gives no deadline.
constexpr std::chrono::seconds kLookUp{20};
// An address that does not answer is not waited for before the next one is tried (RFC 8305), nor
// before it is tried again, since a segment may be lost. They all go on, side by side.
constexpr std::chrono::milliseconds kNextAddress{250};
constexpr std::chrono::milliseconds kNextRound{1000};
constexpr size_t kMostAttempts = 16;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

struct Lookup {
  int error;
  Addresses found;
};

Lookup look_up(const Address& address) {
  addrinfo hints{};
  addrinfo* result = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &result);
  return {error, {result, freeaddrinfo}};
}

// A name server may take longer than this rank has: then the thread that asks it is left behind.
Lookup look_up_name(const Address& address, Deadline deadline) {
  std::packaged_task<Lookup()> task([address] { return look_up(address); });
  auto lookup = task.get_future();
  std::thread(std::move(task)).detach();
  const std::chrono::milliseconds patience(deadline.poll_timeout());
  const auto end = lookup.wait_for(deadline.passed() ? kLookUp : patience);
  CHECK_AS(NetworkError, end == std::future_status::ready, "cannot find host '", address.host,
           "': the name server does not answer");
  return lookup.get();
}

Addresses resolve(const Address& address, Deadline deadline = {}) {
  for (;;) {
    Lookup lookup = is_numeric(address.host) ? look_up(address) : look_up_name(address, deadline);
    if (lookup.error == 0) return std::move(lookup.found);
    CHECK_AS(NetworkError, !deadline.passed(), "cannot find host '", address.host,
             "': ", gai_strerror(lookup.error));
    std::this_thread::sleep_for(kLongestRetry);
  }
}

// Makes attempts to connect, side by side.
class Attempts {
 public:
  // An address that is good within one network only does not name the network, if another machine
  // has written it. So any network is tried.
  void begin(const addrinfo& address) {
    sockaddr_in6 local{};
    std::memcpy(&local, address.ai_addr, std::min<size_t>(sizeof local, address.ai_addrlen));
    if (address.ai_family != AF_INET6 || !IN6_IS_ADDR_LINKLOCAL(&local.sin6_addr) ||
        local.sin6_scope_id != 0)
      return begin(address.ai_family, address.ai_addr, address.ai_addrlen);
    const std::unique_ptr<struct if_nameindex, decltype(&if_freenameindex)> interfaces(
        if_nameindex(), if_freenameindex);
    for (auto* i = interfaces.get(); i != nullptr && i->if_index != 0; ++i) {
      local.sin6_scope_id = i->if_index;
      begin(AF_INET6, reinterpret_cast<sockaddr*>(&local), sizeof local);
    }
  }

  // Returns the first attempt that connects, or nothing if all have failed or the deadline has
  // passed.
  FileDescriptor await(Deadline deadline) {
    while (!sockets_.empty()) {
      std::vector<pollfd> ready;
      for (const FileDescriptor& socket : sockets_) ready.push_back({socket.get(), POLLOUT, 0});
      if (poll(ready.data(), ready.size(), deadline.poll_timeout()) <= 0) break;
      for (size_t i = ready.size(); i-- > 0;) {
        if (ready[i].revents == 0) continue;
        FileDescriptor socket = std::move(sockets_[i]);
        sockets_.erase(sockets_.begin() + static_cast<ptrdiff_t>(i));
        socklen_t size = sizeof error_;
        getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error_, &size);
        if (error_ != 0 || connected_with_itself(socket)) continue;
        fcntl(socket.get(), F_SETFL, 0);
        return socket;
      }
    }
    return FileDescriptor();
  }

  bool under_way() const { return !sockets_.empty(); }
  // Returns the error of the last attempt that failed.
  int error() const { return under_way() ? ETIMEDOUT : error_; }

 private:
  void begin(int family, const sockaddr* address, socklen_t length) {
    FileDescriptor socket = new_tcp_socket(family, SOCK_NONBLOCK);
    error_ = socket && ::connect(socket.get(), address, length) == 0 ? 0 : errno;
    if (error_ != 0 && error_ != EINPROGRESS) return;
    if (sockets_.size() == kMostAttempts) sockets_.pop_front();
    sockets_.push_back(std::move(socket));
  }

  std::deque<FileDescriptor> sockets_;
  int error_ = 0;
};

FileDescriptor connect_side_by_side(const Address& address, Deadline deadline, IfRefused refused) {
  Attempts attempts;
  for (auto pause = kRetry;; pause = std::min(2 * pause, kLongestRetry)) {
    const Addresses found = resolve(address, deadline);
    for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
      attempts.begin(*a);
      const auto patience = deadline.but_at_most(a->ai_next ? kNextAddress : kNextRound);
      if (FileDescriptor socket = attempts.await(patience)) return socket;
    }
    CHECK_AS(DistributedError, refused == IfRefused::TryAgain || attempts.error() != ECONNREFUSED,
             "nobody listens any more at ", to_string(address));
    CHECK_AS(TimeoutError, !deadline.passed(), "nobody answers at ", to_string(address), ": ",
             std::strerror(attempts.error()));
    if (!attempts.under_way()) std::this_thread::sleep_for(pause);
  }
}

std::vector<FileDescriptor> listen_on_all(const Address& address) {
  std::vector<FileDescriptor> listeners;
  std::set<std::string> hosts;
  const Addresses found = resolve(address);
  if (found->ai_next == nullptr) return listeners;
  for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
    char host[NI_MAXHOST] = "";
    getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    if (!hosts.insert(host).second) continue;
    try {
      listeners.push_back(listen_tcp({host, address.port}));
    } catch (const AddressInUseError&) {
      throw;
    } catch (const Error&) {  // the address is not this machine's, or of a kind that it lacks
    }
  }
  return listeners;
}

bool is_loopback(const std::string& host) {
  const Addresses found = resolve({host, 0});
  for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
    if (a->ai_family == AF_INET) {
      const auto ip = ntohl(reinterpret_cast<const sockaddr_in*>(a->ai_addr)->sin_addr.s_addr);
      if (ip >> 24 != 127) return false;
    } else if (a->ai_family != AF_INET6 ||
               !IN6_IS_ADDR_LOOPBACK(
                   &reinterpret_cast<const sockaddr_in6*>(a->ai_addr)->sin6_addr)) {
      return false;
    }
  }
  return true;
}

// Connecting a datagram socket sends nothing, and chooses the route. A name may be this machine's
// own, for which Debian has 127.0.1.1 first.
std::string address_towards(const std::string& host, Deadline deadline) {
  const Addresses found = resolve({host, 9}, deadline);
  std::string own;
  for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
    const FileDescriptor socket(::socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), a->ai_addr, a->ai_addrlen) != 0) continue;
    if (own.empty() || is_loopback(own)) own = local_address(socket).host;
  }
  CHECK_AS(DistributedError, !own.empty(), "no way to host ", host, ": ", std::strerror(errno));
  return own;
}

Address parse_url(const std::string& url) {
  const std::string scheme = "tcp://";
  const size_t colon = url.rfind(':');
  std::string host;
  int port = 0;
  if (url.starts_with(scheme) && colon > scheme.size()) {
    port = parse_number<int>(url.substr(colon + 1)).value_or(0);
    host = url.substr(scheme.size(), colon - scheme.size());
    // As an IPv6 address is, which has colons itself.
    const bool bracketed = host.front() == '[' && host.back() == ']';
    if (bracketed) host = host.substr(1, host.size() - 2);
    if (!bracketed && host.find(':') != std::string::npos) port = 0;
  }
  CHECK(port > 0 && port < 65'535, "launch: dist_url '", url,
        "', expected auto, tcp://host:port or tcp://[IPv6 address]:port, with a port from 1 to "
        "65534");
  return {host, static_cast<uint16_t>(port)};
}

constinit const Networks over_networks{connect_side_by_side, listen_on_all, address_towards,
                                       check_reachable,      is_loopback,   parse_url};
BEFORE_MAIN(over_networks, networks = &over_networks);

}  // namespace

void check_reachable(const std::string& host) {
  bool loopback = false;
  try {
    loopback = host != "localhost" && !is_numeric(host) && is_loopback(host);
  } catch (const Error&) {  // the name is not known yet
  }
  CHECK_AS(EnvironmentError, !loopback, "rendezvous: on this machine '", host,
           "' is a loopback address (see /etc/hosts), where no other machine reaches it; "
           "give MASTER_ADDR or --master-addr one of the addresses that `hostname -I` prints");
}

}  // namespace ringgrad
