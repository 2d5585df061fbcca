// The program `ringgrad`. Every error ends here. It is printed on stderr, with its place and how to
// fix it, and the exit code in words; with --json it is also in the document.
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <locale>
#include <new>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/program/command_line.h"
#include "ringgrad/program/console/document.h"
#include "ringgrad/program/console/exit_code.h"

namespace {

using namespace ringgrad::program;

// Says what the memory was for. std::bad_alloc does not know.
class NoMemory : public std::bad_alloc {
 public:
  NoMemory() {
    std::snprintf(text_, sizeof text_,
                  "%s: no memory is left, in %s; see ulimit -v, and what else runs here",
                  ringgrad::current_op(), ringgrad::name(ringgrad::own_status().phase.load()));
  }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[160];
};

// Tensors keep the memory of earlier ones for later ones, so that a small object beside them may
// find none. It gets these addresses, which nobody has touched.
std::atomic<void*> reserve;

void find_memory() {
  void* const given = reserve.exchange(nullptr);
  if (!given) throw NoMemory();
  std::free(given);
}

// A program whose stack overflows dies without a message, so the limit is checked first.
void check_stack() {
  constexpr rlim_t kNeeded = 512 << 10;
  rlimit stack{};
  if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < kNeeded)
    throw ringgrad::LimitError(
        fmt::format("the stack may have {} kB, expected at least {}; raise the limit (ulimit -s)",
                    stack.rlim_cur >> 10, kNeeded >> 10));
}

}  // namespace

int main(int argc, char** argv) {
  // Numbers are written and read in the same form in every locale.
  std::locale::global(std::locale::classic());
  std::cout.imbue(std::locale::classic());
  std::cerr.imbue(std::locale::classic());
  ringgrad::open_standard_streams();
  if (argc > 0) ringgrad::set_program_name(argv[0]);  // for hints
  signal(SIGXFSZ, SIG_IGN);  // a file beyond its limit is an error of the write
  reserve = std::malloc(size_t{16} << 20);
  std::set_new_handler(find_memory);
  try {
    check_stack();
    if (asks_for_document(argc, argv)) open_document();
    const int code = run_command_line(argc, argv);
    if (code == ringgrad::kOk && !std::cout.flush())
      throw ringgrad::IoError("standard output cannot be written; is the disk full?");
    close_document(code);
    return code;
  } catch (...) {
    const int code = exit_code_of(std::current_exception());
    const bool noticed = ringgrad::is_noticed(std::current_exception());
    // A launcher says it once for all ranks.
    const ringgrad::Failure failure = ringgrad::failure_of(std::current_exception());
    ringgrad::report_failure(failure, noticed);
    if (!ringgrad::launcher_knows_failure())
      std::cerr << "ringgrad: " << failure.text << '\n' << failure_line(code) << '\n';
    try {
      close_document(code, noticed ? "" : failure.text);
    } catch (const std::exception&) {  // it is said on stderr
    }
    if (!ringgrad::variable("RINGGRAD_DEBUG").empty()) throw;  // for a debugger's backtrace
    return code;
  }
}
