#include "ringgrad/distributed/os/lifeline.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"

namespace ringgrad {

// Nobody ever writes to this pipe: it only ends when the last descriptor for writing is closed, which the launcher has.
Lifeline::Lifeline() {
  int ends[2];
  CHECK_AS(IoError, pipe2(ends, O_CLOEXEC) == 0, "launch: pipe: ", std::strerror(errno));
  held_by_ranks_ = FileDescriptor(ends[0]);
  held_by_launcher_ = FileDescriptor(ends[1]);
}

void hold_on_to_lifeline() {
  const std::string number = variable("RINGGRAD_LIFELINE_FD");
  if (number.empty()) return;
  // Opened again, because the signal goes to one owner of an open file, and all ranks have inherited the same one.
  static const int own =
      open(str("/proc/self/fd/", std::atoi(number.c_str())).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat status {};
  if (own < 0 || fstat(own, &status) != 0 || !S_ISFIFO(status.st_mode)) return;  // somebody in between has closed it
  fcntl(own, F_SETOWN, getpid());
  fcntl(own, F_SETSIG, SIGKILL);
  fcntl(own, F_SETFL, O_ASYNC | O_NONBLOCK);
  pollfd ended{own, POLLIN, 0};
  if (poll(&ended, 1, 0) > 0) raise(SIGKILL);  // before the lines above
}

}  // namespace ringgrad
