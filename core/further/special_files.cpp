// Writes to what is no regular file: pipes, terminals, and descriptors of this process.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/core/base/text.h"

namespace ringgrad {
namespace fs = std::filesystem;
namespace {

struct Target {
  explicit Target(int descriptor) : descriptor(descriptor) {}
  Target(const Target&) = delete;
  ~Target() { ::close(descriptor); }
  const int descriptor;
};

// Returns N for /proc/self/fd/N and for other paths to it.
std::optional<int> own_descriptor(const fs::path& file) {
  const fs::path directory = file.has_parent_path() ? file.parent_path() : fs::path(".");
  std::error_code none;
  if (!fs::equivalent(directory, "/proc/self/fd", none)) return {};
  return parse_number<int>(file.filename().string());
}

// Blocks SIGPIPE, so that a reader that has gone makes the write fail and does not end this
// process.
bool write_all_of(int from, uint64_t end, int target) {
  sigset_t pipe;
  sigset_t before;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  std::string bytes(1 << 20, '\0');
  bool written = true;
  for (uint64_t offset = 0; written && offset < end;) {
    const ssize_t count = ::pread(from, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    written = count > 0 && write_all(target, {bytes.data(), static_cast<size_t>(count)});
    offset += static_cast<uint64_t>(std::max<ssize_t>(0, count));
  }
  const int reason = errno;
  if (!written && reason == EPIPE && !::sigismember(&before, SIGPIPE)) {
    constexpr timespec kNow{};
    ::sigtimedwait(&pipe, nullptr, &kNow);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = reason;
  return written;
}

WriteThrough open_target(const fs::path& place, const char*& what) {
  const std::optional<int> own = own_descriptor(place);
  // Without O_NONBLOCK, opening a pipe would wait until another process reads from it.
  const int descriptor = own ? ::fcntl(*own, F_DUPFD_CLOEXEC, 0)
                             : ::open(place.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0) {
    if (!own && errno == ENXIO) what = "is read by nobody";
    return {};
  }
  const auto target = std::make_shared<Target>(descriptor);
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (own && (flags & O_ACCMODE) == O_RDONLY) {
    errno = EBADF;
    return {};
  }
  if (!own) ::fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK);
  return
      [target](int from, uint64_t bytes) { return write_all_of(from, bytes, target->descriptor); };
}
BEFORE_MAIN(special_files, open_special_file = open_target);

}  // namespace
}  // namespace ringgrad
