#include "ringgrad/core/base/file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace fs = std::filesystem;
namespace {

void check_limit(int descriptor, const fs::path& file) {
  CHECK_AS(LimitError, descriptor >= 0 || (errno != EMFILE && errno != ENFILE), file.string(), ": ",
           std::strerror(errno), "; close files, or raise the limit (ulimit -n)");
}

}  // namespace

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EAGAIN) {  // the descriptor is non-blocking
      pollfd writable{descriptor, POLLOUT, 0};
      ::poll(&writable, 1, -1);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

InputFile::InputFile(const fs::path& path)
    // Without O_NONBLOCK, opening a pipe would wait until another process writes to it.
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  check_limit(descriptor_, path);
  CHECK_AS(IoError, descriptor_ >= 0, "read: ", path.string(), ": ", std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  if (!regular) ::close(descriptor_);
  CHECK_AS(IoError, regular, "read: ", path.string(), ": is not a regular file");
  size_ = static_cast<uint64_t>(status.st_size);
}

InputFile::InputFile(const AtomicFile& written)
    : path_(written.file_),
      descriptor_(::fcntl(written.descriptor_, F_DUPFD_CLOEXEC, 0)),
      size_(written.end_) {
  check_limit(descriptor_, path_);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read_at(uint64_t offset, std::span<uint8_t> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    CHECK_AS(IoError, count >= 0, "read: ", path_.string(), ": byte ", offset, ": ",
             std::strerror(errno));
    CHECK_AS(DataError, count > 0, "read: ", path_.string(), ": ends at byte ", offset,
             ", expected ", size_, " bytes: it was cut while it was read");
    offset += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

namespace {

constexpr std::string_view kPart = ".part";

fs::path directory_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// Returns the common prefix of this machine's temporary parts of a file. The host's name is in it
// because a process number means nothing on another machine that shares the directory.
std::string prefix_of(const fs::path& file) {
  char host[HOST_NAME_MAX + 1] = {};
  ::gethostname(host, HOST_NAME_MAX);
  // The file's name is cut so that the part's name is not too long.
  constexpr size_t kMost = 160;
  return str(file.filename().string().substr(0, kMost), ".", host, ".");
}

fs::path link_to(int descriptor) { return str("/proc/self/fd/", descriptor); }

bool is_in_proc(const fs::path& file) {
  struct statfs system {};
  return ::statfs(directory_of(file).c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

// Returns the path without links at its end. The path may lead to a file that does not exist yet.
// Links in /proc to open files have no path to follow.
fs::path followed(const fs::path& file) {
  constexpr int kMostLinks = 40;  // as the kernel's
  fs::path path = file;
  std::error_code none;
  for (int links = 0; fs::is_symlink(fs::symlink_status(path, none)) && !is_in_proc(path);
       ++links) {
    CHECK_AS(IoError, links < kMostLinks, "write: ", file.string(),
             " cannot be written: ", std::strerror(ELOOP));
    const fs::path leads_to = fs::read_symlink(path, none);
    path = leads_to.is_absolute() ? leads_to : directory_of(path) / leads_to;
  }
  return path;
}

// Errors are ignored, because nothing depends on this clean-up.
void remove_parts_of_the_dead(const fs::path& file) {
  const std::string prefix = prefix_of(file);
  std::error_code ignored;
  for (fs::directory_iterator entry(directory_of(file), ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(kPart)) continue;
    const std::string behind = name.substr(prefix.size());
    const auto pid = parse_number<pid_t>(behind.substr(0, behind.find('.'))).value_or(0);
    std::error_code unremoved;
    if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) fs::remove(entry->path(), unremoved);
  }
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& file) : file_(file), place_(followed(file)) {
  open_target();
  open_part();
}

// Opens the target if it is not a regular file; otherwise checks that it may be replaced. REQUIRES:
// nothing is open.
void AtomicFile::open_target() {
  const bool in_proc = is_in_proc(place_);
  struct stat status {};
  const bool exists = ::stat(place_.c_str(), &status) == 0;
  if (!exists && errno != ENOENT && !in_proc) fail("cannot be written");
  if (exists && S_ISDIR(status.st_mode)) fail("cannot be written", EISDIR);
  if (in_proc || (exists && !S_ISREG(status.st_mode))) {
    CHECK_AS(IoError, open_special_file, "write: ", file_.string(),
             " is no regular file, and this program only writes those; link all of "
             "ringgrad::ringgrad, or name a regular file");
    const char* what = "cannot be written";
    target_ = open_special_file(place_, what);
    check_limit(target_ ? 0 : -1, file_);
    if (!target_) fail(what);
  } else if (exists && ::faccessat(AT_FDCWD, place_.c_str(), W_OK, AT_EACCESS) != 0) {
    fail("cannot be replaced");
  }
}

void AtomicFile::open_part() {
  if (target_) {
    descriptor_ = ::memfd_create("ringgrad", MFD_CLOEXEC);
    check_limit(descriptor_, file_);
    if (descriptor_ < 0) fail("cannot be created");
    return;
  }
  static std::atomic<int> count{0};
  remove_parts_of_the_dead(place_);
  part_ = directory_of(place_) / str(prefix_of(place_), ::getpid(), ".", count++, kPart);
  // A nameless file gets its name through /proc, which some containers lack.
  nameless_ = ::access(link_to(STDIN_FILENO).parent_path().c_str(), X_OK) == 0;
  if (nameless_)
    descriptor_ = ::open(directory_of(place_).c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    nameless_ = false;
    descriptor_ = ::open(part_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  }
  check_limit(descriptor_, file_);
  if (descriptor_ < 0) fail("cannot be created");
  struct stat before {};
  if (::stat(place_.c_str(), &before) != 0) return;
  [[maybe_unused]] const int ignored = ::fchown(descriptor_, before.st_uid, before.st_gid);
  ::fchmod(descriptor_, before.st_mode & 0777);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (!part_.empty()) ::unlink(part_.c_str());
}

void AtomicFile::fail(const char* what, int known) const {
  const int reason = known != 0 ? known : errno;
  const bool was_there = !target_ && ::access(place_.c_str(), F_OK) == 0;
  throw IoError(str("write: ", file_.string(), " ", what, ": ", std::strerror(reason),
                    reason == EFBIG ? " (see ulimit -f)" : "",
                    was_there ? "; what was there before is intact" : ""));
}

void AtomicFile::write(std::span<const uint8_t> bytes) { write_at(end_, bytes); }
void AtomicFile::write(std::string_view text) {
  write(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

void AtomicFile::write_at(uint64_t offset, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(str("cannot be written at byte ", offset).c_str());
    offset += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  end_ = std::max(end_, offset);
}

void AtomicFile::commit() {
  if (target_) {
    if (!target_(descriptor_, end_)) fail("cannot be written");
    return;
  }
  if (::fdatasync(descriptor_) != 0) fail("cannot be flushed to the disk");
  if (nameless_) {
    ::unlink(part_.c_str());  // left by an earlier process with the same number
    if (::linkat(AT_FDCWD, link_to(descriptor_).c_str(), AT_FDCWD, part_.c_str(),
                 AT_SYMLINK_FOLLOW) != 0)
      fail("cannot be named");
  }
  if (::rename(part_.c_str(), place_.c_str()) != 0) fail("cannot be replaced");
  ::close(std::exchange(descriptor_, -1));
  // The new content is in place; a directory that cannot be flushed (some file systems) does not
  // change that.
  const int directory = ::open(directory_of(place_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  ::fsync(directory);
  ::close(directory);
}

}  // namespace ringgrad
