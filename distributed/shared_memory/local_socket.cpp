#include "ringgrad/distributed/shared_memory/local_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

// Binds or connects a new socket to the name. Returns what bind() or connect() returns.
template <class Call>
int with_address(FileDescriptor& socket, const std::string& name, Call call) {
  socket = FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  check_opened<DistributedError>(socket, "no socket");
  socket.keep_from_forks();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT(name.size() + 1 < sizeof address.sun_path);
  // The leading zero byte puts the name into the abstract namespace.
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return call(socket.get(), reinterpret_cast<const sockaddr*>(&address),
              static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
}

}  // namespace

FileDescriptor listen_local(const std::string& name) {
  FileDescriptor socket;
  const bool listening =
      with_address(socket, name, bind) == 0 && listen(socket.get(), SOMAXCONN) == 0;
  CHECK_AS(DistributedError, listening, "cannot listen on local socket ", name, ": ",
           std::strerror(errno));
  return socket;
}

FileDescriptor connect_local(const std::string& name, Deadline deadline) {
  for (FileDescriptor socket;;) {
    if (with_address(socket, name, connect) == 0) {
      fcntl(socket.get(), F_SETFL, 0);
      return socket;
    }
    CHECK_AS(DistributedError, errno != ECONNREFUSED, "nobody listens any more at local socket ",
             name);
    CHECK_AS(TimeoutError, !deadline.passed(), "nobody answers at local socket ", name, ": ",
             std::strerror(errno));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace ringgrad
