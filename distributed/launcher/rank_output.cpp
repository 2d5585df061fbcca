#include "ringgrad/distributed/launcher/rank_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "ringgrad/core/base/file.h"

namespace ringgrad {
namespace {

constexpr size_t kLongestLine = 64 << 10;  // a rank that writes no line ends cannot fill the memory
constexpr size_t kPiece = 16 << 10;        // one stream's turn
constexpr size_t kPipeBytes = 64 << 10;    // the capacity of a pipe

}  // namespace

// Another process, such as rank 0, may fill a pipe between poll() and write(). O_NONBLOCK would
// hold for every process that shares the open file, so the launcher opens its own. Regular files
// never block, and opened again they would have another position.
OutputSink::OutputSink(int descriptor) : descriptor_(descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) == 0 && (S_ISFIFO(status.st_mode) || isatty(descriptor)))
    own_ = FileDescriptor(open(str("/proc/self/fd/", descriptor).c_str(),
                               O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

std::string OutputSink::write_some() {
  const ssize_t n =
      write(descriptor(), pending_.data(), std::min<size_t>(pending_.size(), PIPE_BUF));
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return {};
  pending_.erase(0, static_cast<size_t>(n));  // -1 is all of it
  if (n >= 0 || errno == EPIPE || std::exchange(failed_, true)) return {};
  return str("the ranks' output to /dev/fd/", descriptor_, " is lost: ", std::strerror(errno),
             '\n');
}

RankOutput::RankOutput(FileDescriptor source, OutputSink& sink, std::string prefix, int log)
    : source_(std::move(source)), sink_(sink), log_(log), prefix_(std::move(prefix)) {
  if (source_) fcntl(source_.get(), F_SETFL, O_NONBLOCK);
}

bool RankOutput::forward() {
  char bytes[kPiece];
  const ssize_t n = read(source_.get(), bytes, sizeof bytes);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return false;
  if (n <= 0) {
    source_.reset();
    if (!line_.empty()) end_line();
    return false;
  }
  if (log_ >= 0 && !write_all(log_, {bytes, static_cast<size_t>(n)})) {
    log_ = -1;  // a full disk costs the log only
    sink_.add(str(prefix_, "the log ends here: ", std::strerror(errno), '\n'));
  }
  for (ssize_t i = 0; i < n; ++i) {
    if (bytes[i] != '\n') line_ += bytes[i];
    if (bytes[i] == '\n' || line_.size() >= kLongestLine) end_line();
  }
  return true;
}

void RankOutput::finish() {
  for (size_t taken = 0; !ended() && taken < kPipeBytes; taken += kPiece)
    if (!forward()) break;
  if (!line_.empty()) end_line();
  source_.reset();
}

void RankOutput::end_line() {
  sink_.add(prefix_ + line_ + '\n');
  line_.clear();
}

}  // namespace ringgrad
