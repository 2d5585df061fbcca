#include "distributed/rank_output.h"

#include <fcntl.h>

#include <cerrno>

namespace ringgrad {
namespace {

constexpr size_t kLongestLine = 64 << 10;  // a rank that writes no line ends cannot fill the memory

void write_to(int descriptor, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(descriptor, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody reads it any more
    done += static_cast<size_t>(n);
  }
}

}  // namespace

RankOutput::RankOutput(FileDescriptor source, int sink, std::string prefix, int log)
    : source_(std::move(source)), sink_(sink), log_(log), prefix_(std::move(prefix)) {
  if (source_) fcntl(source_.get(), F_SETFL, O_NONBLOCK);
}

void RankOutput::forward() {
  char bytes[16 << 10];
  for (;;) {
    const ssize_t n = read(source_.get(), bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      source_.reset();
      return flush();
    }
    if (log_ >= 0) write_to(log_, std::string(bytes, static_cast<size_t>(n)));
    for (ssize_t i = 0; i < n; ++i) {
      line_ += bytes[i];
      if (bytes[i] == '\n' || line_.size() >= kLongestLine) write_line(line_);
    }
  }
}

void RankOutput::flush() {
  if (!line_.empty()) write_line(line_ + '\n');
}

void RankOutput::write_line(const std::string& line) {
  write_to(sink_, prefix_ + line);
  line_.clear();
}

}  // namespace ringgrad
