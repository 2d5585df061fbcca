// Finds the owners of this machine's sockets in the kernel's tables.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/distributed/os/socket.h"

namespace ringgrad {
namespace {

constexpr const char* kTcpTable = "/proc/net/tcp";
constexpr const char* kTcp6Table = "/proc/net/tcp6";

// A row of the kernel's tables. The addresses are in hexadecimal: "0100007F:733C".
struct TcpSocket {
  std::string local;
  std::string remote;
  std::string state;
  std::string inode;
  uid_t user;
};

std::vector<TcpSocket> tcp_sockets(const char* path) {
  std::vector<TcpSocket> sockets;
  Classic<std::ifstream> table(path);
  std::string line;
  std::string number;
  std::string queues;
  std::string timer;
  std::string retries;
  std::string timeout;
  std::getline(table, line);  // the heading
  for (TcpSocket s; table >> number >> s.local >> s.remote >> s.state >> queues >> timer >>
                    retries >> s.user >> timeout >> s.inode;) {
    std::getline(table, line);
    sockets.push_back(s);
  }
  return sockets;
}

// Returns an address in the form of the tables: words of the machine, each as it lies in memory.
std::string as_in_table(const sockaddr_storage& address) {
  const bool v6 = address.ss_family == AF_INET6;
  const auto& in = reinterpret_cast<const sockaddr_in&>(address);
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address);
  std::string text;
  char word[16];
  for (size_t i = 0; i < (v6 ? 4 : 1); ++i) {
    std::snprintf(word, sizeof word, "%08X", v6 ? in6.sin6_addr.s6_addr32[i] : in.sin_addr.s_addr);
    text += word;
  }
  std::snprintf(word, sizeof word, ":%04X", ntohs(v6 ? in6.sin6_port : in.sin_port));
  return text + word;
}

// Returns the text of the links /proc/PID/fd/N to the sockets that listen on a port:
// "socket:[12345]".
std::set<std::string> listening_sockets(int port) {
  std::set<std::string> sockets;
  for (const char* path : {kTcpTable, kTcp6Table})
    for (const TcpSocket& socket : tcp_sockets(path)) {
      const std::string number = socket.local.substr(socket.local.rfind(':') + 1);
      if (socket.state == "0A" && parse_number<int>(number, 16) == port)
        sockets.insert("socket:[" + socket.inode + "]");
    }
  return sockets;
}

bool holds(const std::filesystem::path& process, const std::set<std::string>& sockets) {
  std::error_code error;
  for (std::filesystem::directory_iterator fd(process / "fd", error), end; !error && fd != end;
       fd.increment(error)) {
    std::error_code gone;
    if (sockets.count(std::filesystem::read_symlink(fd->path(), gone).string())) return true;
  }
  return false;
}

std::optional<uid_t> user_of_peer(const FileDescriptor& socket) {
  ucred of_local_socket{};  // no process for any other socket
  socklen_t size = sizeof of_local_socket;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &of_local_socket, &size) == 0 &&
      of_local_socket.pid != 0)
    return of_local_socket.uid;
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_length = sizeof own;
  socklen_t other_length = sizeof other;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &own_length) != 0 ||
      getpeername(socket.get(), reinterpret_cast<sockaddr*>(&other), &other_length) != 0)
    return {};
  const std::string here = as_in_table(own);
  const std::string there = as_in_table(other);
  for (const TcpSocket& row : tcp_sockets(own.ss_family == AF_INET6 ? kTcp6Table : kTcpTable))
    if (row.local == there && row.remote == here && row.inode != "0")
      return row.user;  // 0: no process holds it any more
  return {};
}

std::string holder_of(int port) {
  const auto sockets = listening_sockets(port);
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end;
       !error && !sockets.empty() && entry != end; entry.increment(error)) {
    const std::string pid = entry->path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos || !holds(entry->path(), sockets))
      continue;
    std::string name;
    Classic<std::ifstream> comm(entry->path() / "comm");
    std::getline(comm, name);
    return str(name, " (process ", pid, ")");
  }
  return "another program";
}

BEFORE_MAIN(socket_owners, user_at_other_end = user_of_peer; port_owner = holder_of);

}  // namespace
}  // namespace ringgrad
