// The program `ringgrad`. Every error ends here: what, where and how to mend it, on stderr, and the exit code in words.
#include <csignal>
#include <cstdlib>
#include <iostream>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/models/program/command_line.h"
#include "ringgrad/models/program/console/exit_code.h"

int main(int argc, char** argv) {
  using namespace ringgrad::program;
  ringgrad::open_standard_streams();
  // Hints name the program as it was called, also those of the ranks that it starts; ./go has said its own name.
  if (argc > 0 && ringgrad::variable("RINGGRAD_CALLED_AS").empty()) setenv("RINGGRAD_CALLED_AS", argv[0], 1);
  signal(SIGXFSZ, SIG_IGN);  // a file beyond its limit is an error of the write
  try {
    const int code = run_command_line(argc, argv);
    if (code == ringgrad::kOk && !std::cout.flush())
      throw ringgrad::IoError("standard output cannot be written; is the disk full?");
    return code;
  } catch (...) {
    const int code = exit_code_of(std::current_exception());
    // A launcher says it once for all ranks.
    const ringgrad::Failure failure = ringgrad::failure_of(std::current_exception());
    ringgrad::report_failure(failure, ringgrad::is_noticed(std::current_exception()));
    if (!ringgrad::launcher_knows_failure())
      std::cerr << "ringgrad: " << failure.text << '\n' << failure_line(code) << '\n';
    if (!ringgrad::variable("RINGGRAD_DEBUG").empty()) throw;  // for a debugger's backtrace
    return code;
  }
}
