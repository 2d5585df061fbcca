#include "nn/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "core/check.h"

namespace ringgrad::nn {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kTemporary = ".tmp.";

fs::path directory_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : path_(path), temporary_(path) {
  temporary_ += str(kTemporary, getpid());
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("cannot be created");
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* what, int64_t offset) const {
  const int reason = errno;
  throw WriteError(str("save: ", path_.string(), " ", what, offset < 0 ? "" : str(" at byte ", offset), ": ",
                       std::strerror(reason), "; what was there before is intact"));
}

void AtomicFile::write_at(int64_t offset, const void* data, size_t bytes) {
  const char* begin = static_cast<const char*>(data);
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = pwrite(fd_, begin + done, bytes - done, offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("cannot be written", offset + static_cast<int64_t>(done));
    done += static_cast<size_t>(n);
  }
}

void AtomicFile::commit() {
  if (fdatasync(fd_) != 0) fail("cannot be flushed to the disk");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be replaced");
  close(std::exchange(fd_, -1));
  // The new content is in place; a directory that cannot be flushed (some file systems) does not change that.
  const int directory = open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  fsync(directory);
  close(directory);
}

void remove_stale_temporaries(const fs::path& directory) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    const size_t at = name.rfind(kTemporary);
    if (at == std::string::npos) continue;
    const char *begin = name.data() + at + kTemporary.size(), *end = name.data() + name.size();
    pid_t pid = 0;
    const auto [rest, error] = std::from_chars(begin, end, pid);
    if (error != std::errc() || rest != end || pid <= 0) continue;
    if (kill(pid, 0) != 0 && errno == ESRCH) fs::remove(entry.path(), ignored);
  }
}

}  // namespace ringgrad::nn
