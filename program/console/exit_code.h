// The exit codes of the program: documented, tested, and printed in words.
#pragma once

#include <csignal>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "ringgrad/distributed/failure.h"

namespace ringgrad::program {

const char* describe(int code);      // "bad data or checkpoint"; above 128, a signal: "Terminated"
std::string failure_line(int code);  // "ringgrad: failed (exit 5: a rank died)"

// A mistake on the command line; the message is printed as it is.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
  template <class First, class... Rest>
  UsageError(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest)
      : std::runtime_error(
            fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...)) {}
};

// A job of ranks has failed. It ends the program with its first cause's exit code and words, or
// with the code for a signal.
struct JobFailed : std::runtime_error {
  JobFailed(int code, const std::string& report)
      : std::runtime_error(report.substr(0, report.find_last_not_of('\n') + 1)), exit_code(code) {}
  int exit_code;
};

// Returns the code for an exception that reached main: ringgrad::exit_code_of(), or one of the
// above.
int exit_code_of(std::exception_ptr error);

// After this, Ctrl-C and SIGTERM ask for a clean end: the step in progress is finished and saved.
// That may take a while, so `said` is printed at once; it must stay valid. A second signal, at
// least half a second later, ends the program at once.
void catch_interrupts(const char* said = nullptr);
int interrupted();  // the signal that asked for the end, or 0

// While it lives, such signals are held, so that none is lost between a call of interrupted() and a
// launcher that takes over.
class InterruptsHeld {
 public:
  InterruptsHeld();
  ~InterruptsHeld();
  InterruptsHeld(const InterruptsHeld&) = delete;
  InterruptsHeld& operator=(const InterruptsHeld&) = delete;

 private:
  sigset_t before_;
};

}  // namespace ringgrad::program
