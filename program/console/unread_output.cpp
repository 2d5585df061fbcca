#include "ringgrad/program/console/unread_output.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iostream>
#include <optional>
#include <streambuf>
#include <utility>

#include <fmt/format.h>

#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launcher/rank_output.h"

namespace ringgrad::program {
namespace {

// Passes a stream's text on to a descriptor whose reader may stand still.
class Unhurried final : public std::streambuf {
 public:
  Unhurried(std::ostream& stream, int descriptor, const char* name)
      : stream_(stream),
        sink_(descriptor),
        name_(name),
        patience_(
            std::min<std::chrono::milliseconds>(std::chrono::seconds(10), default_timeout() / 4)),
        before_(stream.rdbuf(this)) {}
  ~Unhurried() override {
    stream_.flush();
    stream_.rdbuf(before_);
  }
  void tell(std::ostream& other) { other_ = &other; }

 protected:
  int_type overflow(int_type c) override {
    if (c != traits_type::eof()) text_ += traits_type::to_char_type(c);
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    text_.append(text, static_cast<size_t>(size));
    return size;
  }
  int sync() override {
    const std::string text = std::exchange(text_, "");
    if (text.empty()) return 0;
    if (!takes(stands_still_ ? std::chrono::milliseconds(0) : patience_)) {
      dropped_ += std::count(text.begin(), text.end(), '\n');
      return 0;
    }
    if (dropped_ > 0)
      sink_.add(
          fmt::format("({} lines that nobody read were dropped)\n", std::exchange(dropped_, 0)));
    sink_.add(text);
    const bool stood_still = std::exchange(stands_still_, !takes(patience_));
    if (stands_still_ && !stood_still && other_)
      *other_ << "note    nobody reads " << name_ << ": its lines are dropped, and the job goes on"
              << std::endl;
    return 0;
  }

 private:
  // Returns true once the reader has taken all.
  bool takes(std::chrono::milliseconds longest) {
    while (!sink_.empty()) {
      pollfd room{sink_.descriptor(), POLLOUT, 0};
      const int ready = poll(&room, 1, static_cast<int>(longest.count()));
      if (ready == 0) return false;
      if (ready > 0) sink_.write_some();
    }
    return true;
  }

  std::ostream& stream_;
  OutputSink sink_;
  const char* name_;
  const std::chrono::milliseconds patience_;
  std::streambuf* before_;
  std::ostream* other_ = nullptr;
  std::string text_;
  int64_t dropped_ = 0;
  bool stands_still_ = false;
};

bool may_stand_still(int descriptor) {
  struct stat status {};
  return isatty(descriptor) || (fstat(descriptor, &status) == 0 && S_ISFIFO(status.st_mode));
}

}  // namespace

void go_on_unread() {
  static std::optional<Unhurried> out;
  static std::optional<Unhurried> error;
  if (out || error) return;
  signal(SIGPIPE, SIG_IGN);
  if (may_stand_still(STDOUT_FILENO)) out.emplace(std::cout, STDOUT_FILENO, "standard output");
  if (may_stand_still(STDERR_FILENO)) error.emplace(std::cerr, STDERR_FILENO, "standard error");
  if (out) out->tell(std::cerr);
  if (error) error->tell(std::cout);
}

}  // namespace ringgrad::program
