#include "ringgrad/distributed/os/port_owner.h"

#include <filesystem>
#include <fstream>
#include <set>

#include "ringgrad/core/error.h"

namespace ringgrad {
namespace {

namespace fs = std::filesystem;

// What the links of /proc/PID/fd to the sockets that listen on a port read: "socket:[12345]".
std::set<std::string> listening_sockets(int port) {
  std::set<std::string> sockets;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(path);
    std::string line, number, local, remote, state, queues, timer, retries, user, timeout, inode;
    std::getline(table, line);  // the heading
    while (table >> number >> local >> remote >> state >> queues >> timer >> retries >> user >> timeout >> inode) {
      std::getline(table, line);
      const bool listens = state == "0A";
      if (listens && std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16) == port)
        sockets.insert("socket:[" + inode + "]");
    }
  }
  return sockets;
}

bool holds(const fs::path& process, const std::set<std::string>& sockets) {
  std::error_code error;
  for (fs::directory_iterator fd(process / "fd", error), end; !error && fd != end; fd.increment(error)) {
    std::error_code gone;
    if (sockets.count(fs::read_symlink(fd->path(), gone).string())) return true;
  }
  return false;
}

}  // namespace

std::string port_owner(int port) {
  const auto sockets = listening_sockets(port);
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && !sockets.empty() && entry != end;
       entry.increment(error)) {
    const std::string pid = entry->path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos || !holds(entry->path(), sockets)) continue;
    std::string name;
    std::getline(std::ifstream(entry->path() / "comm"), name);
    return str(name, " (process ", pid, ")");
  }
  return "another program";
}

}  // namespace ringgrad
