#include "ringgrad/core/base/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <string>
#include <utility>

#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace fs = std::filesystem;
namespace {

void check_limit(int descriptor, const fs::path& file) {
  CHECK_AS(LimitError, descriptor >= 0 || (errno != EMFILE && errno != ENFILE), file.string(), ": ",
           std::strerror(errno), "; close files, or raise the limit (ulimit -n)");
}

}  // namespace

InputFile::InputFile(const fs::path& path)
    // Without O_NONBLOCK, opening a pipe would wait for somebody to write to it.
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  check_limit(descriptor_, path);
  CHECK_AS(IoError, descriptor_ >= 0, "read: ", path.string(), ": ", std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  if (!regular) ::close(descriptor_);
  CHECK_AS(IoError, regular, "read: ", path.string(), ": is not a regular file");
  size_ = static_cast<uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read_at(uint64_t offset, std::span<uint8_t> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    CHECK_AS(IoError, count >= 0, "read: ", path_.string(), ": byte ", offset, ": ", std::strerror(errno));
    CHECK_AS(DataError, count > 0, "read: ", path_.string(), ": ends at byte ", offset, ", expected ", size_,
             " bytes: it was cut while it was read");
    offset += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

namespace {

constexpr std::string_view kPart = ".part";

fs::path directory_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

// What the names of this machine's parts of a file begin with. A process number means nothing on another machine that
// shares the directory.
std::string prefix_of(const fs::path& file) {
  char host[HOST_NAME_MAX + 1] = {};
  ::gethostname(host, HOST_NAME_MAX);
  return str(file.filename().string(), ".", host, ".");
}

fs::path link_to(int descriptor) { return str("/proc/self/fd/", descriptor); }

// Errors are ignored: nothing depends on it.
void remove_parts_of_the_dead(const fs::path& file) {
  const std::string prefix = prefix_of(file);
  std::error_code ignored;
  for (fs::directory_iterator entry(directory_of(file), ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(kPart)) continue;
    pid_t pid = 0;
    const char* number = name.data() + prefix.size();
    const auto [rest, error] = std::from_chars(number, name.data() + name.size(), pid);
    if (error != std::errc() || *rest != '.' || pid <= 0) continue;
    std::error_code unremoved;
    if (::kill(pid, 0) != 0 && errno == ESRCH) fs::remove(entry->path(), unremoved);
  }
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& file) : file_(file) {
  static std::atomic<int> count{0};
  remove_parts_of_the_dead(file);
  part_ = directory_of(file) / str(prefix_of(file), ::getpid(), ".", count++, kPart);
  // A nameless file gets its name through /proc, which some containers lack.
  nameless_ = ::access(link_to(STDIN_FILENO).parent_path().c_str(), X_OK) == 0;
  if (nameless_) descriptor_ = ::open(directory_of(file).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    nameless_ = false;
    descriptor_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  }
  check_limit(descriptor_, file);
  if (descriptor_ < 0) fail("cannot be created");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(part_.c_str());
}

void AtomicFile::fail(const char* what) const {
  const int reason = errno;
  throw IoError(str("write: ", file_.string(), " ", what, ": ", std::strerror(reason),
                    reason == EFBIG ? " (see ulimit -f)" : "", "; what was there before is intact"));
}

void AtomicFile::write(std::span<const uint8_t> bytes) { write_at(end_, bytes); }

void AtomicFile::write_at(uint64_t offset, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(str("cannot be written at byte ", offset).c_str());
    offset += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  end_ = std::max(end_, offset);
}

void AtomicFile::commit() {
  if (::fdatasync(descriptor_) != 0) fail("cannot be flushed to the disk");
  if (nameless_) {
    ::unlink(part_.c_str());  // of a process of the same number, long ago
    if (::linkat(AT_FDCWD, link_to(descriptor_).c_str(), AT_FDCWD, part_.c_str(), AT_SYMLINK_FOLLOW) != 0)
      fail("cannot be named");
  }
  if (::rename(part_.c_str(), file_.c_str()) != 0) fail("cannot be replaced");
  ::close(std::exchange(descriptor_, -1));
  // The new content is in place; a directory that cannot be flushed (some file systems) does not change that.
  const int directory = ::open(directory_of(file_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  ::fsync(directory);
  ::close(directory);
}

}  // namespace ringgrad
