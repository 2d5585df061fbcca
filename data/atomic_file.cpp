#include "data/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "core/check.h"

namespace ringgrad {
namespace {

// Several processes (the ranks of a job) and threads may write the same file at once, each to a part of its own.
std::string unique_suffix() {
  static std::atomic<int> count{0};
  return str(".", ::getpid(), "-", count++, ".part");
}

// A part that nobody has written to for an hour belongs to a process that was killed.
void remove_stale_parts(const std::filesystem::path& file) {
  namespace fs = std::filesystem;
  const std::string prefix = file.filename().string() + ".";
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(".part")) continue;
    const auto written = entry->last_write_time(error);
    if (!error && fs::file_time_type::clock::now() - written > std::chrono::hours(1)) fs::remove(entry->path(), error);
  }
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& file) : file_(file), part_(file.string() + unique_suffix()) {
  remove_stale_parts(file);
  descriptor_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  CHECK_AS(IoError, descriptor_ >= 0, "write: ", part_.string(), ": ", std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!committed_) ::unlink(part_.c_str());
}

void AtomicFile::write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    CHECK_AS(IoError, count >= 0, "write: ", file_.string(), ": ", std::strerror(errno), " after ", written_, " bytes");
    written_ += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

// No fsync: these files can be made or downloaded again, and their readers notice one that a power cut shortened.
void AtomicFile::commit() {
  const int closed = ::close(std::exchange(descriptor_, -1));
  CHECK_AS(IoError, closed == 0, "write: ", file_.string(), ": ", std::strerror(errno));
  CHECK_AS(IoError, ::rename(part_.c_str(), file_.c_str()) == 0, "write: ", file_.string(), ": ", std::strerror(errno));
  committed_ = true;
}

}  // namespace ringgrad
