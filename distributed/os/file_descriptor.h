// Owns a file descriptor: a socket, an eventfd, a memfd.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "ringgrad/core/error.h"

namespace ringgrad {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    share_with_forks(fd_);
    return std::exchange(fd_, -1);
  }
  void reset() {
    if (fd_ >= 0) ::close(release());
  }
  // Replaces the descriptor by /dev/null in forked children. Otherwise the child would keep the
  // connection open when the parent ends.
  FileDescriptor& keep_from_forks();

 private:
  static void share_with_forks(int fd);

  int fd_ = -1;
};

// Called after a call that makes a descriptor. Throws if the call has failed: LimitError if this
// process may open no more files, else an E.
template <class E, class Opened, class... What>
void check_opened(const Opened& opened, const What&... what) {
  if (opened) return;
  const std::string text = str(what..., ": ", std::strerror(errno));
  if (errno == EMFILE || errno == ENFILE)
    throw LimitError(text + "; close files, or raise the limit (ulimit -n)");
  throw E(text);
}

// Opens /dev/null for standard input, output or error if the program was started without it.
// Otherwise the next file that it opens would take that number, and receive its output.
inline void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0)
      (void)!open("/dev/null", O_RDWR);  // the lowest number that is free: this one
}

// Raises the limit of open descriptors of this process and its children to the maximum. A rank
// needs four for every other rank on its machine. The usual 1024 also limits how many descriptors
// of a user are in flight between processes.
inline void raise_descriptor_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace ringgrad
