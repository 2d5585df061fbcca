// Failure: the reason why a group of ranks cannot go on. A group fails as a whole. The rank that
// notices first tells the others, and all of them throw the same words. So every rank's message
// names the culprit, and none names a victim.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "ringgrad/core/error.h"

namespace ringgrad {

// The ranks do not do the same thing: another operation, step, shape, model or world size.
struct OutOfStepError : DistributedError {
  using DistributedError::DistributedError;
};

// Another rank's program gave up, as when its loss is NaN: no rank has died.
struct GivenUpError : Error {
  using Error::Error;
};

// Failed: the program itself gave up; all ranks throw an Error.
enum class FailureKind : uint8_t { Died, TimedOut, OutOfStep, Failed };

// The exit codes of the program `ringgrad` and of functions that launch() runs.
enum ExitCode : int {
  kOk = 0,
  // The loss became NaN, or an unexpected error occurred.
  kTrainingFailed = 1,
  // An unknown command or option, or a value that cannot be.
  kUsage = 2,
  // No such device, program or network, a missing package, a port in use, a limit.
  kEnvironment = 3,
  // A data set or checkpoint is missing, damaged or does not fit.
  kBadData = 4,
  // A process ends with one of these two codes if it only reports the failure of others. A launcher
  // looks for the cause elsewhere. Its job ends with one of them only if no rank's own exit code
  // says more.
  kRankDied = 5,
  // A time limit passed, or ranks disagree.
  kOutOfStep = 6,
  kOutOfMemory = 7,
  kDiskFull = 8,
  // Ctrl-C ended it, after saving.
  kInterrupted = 130,
};

// Returns the exit code for an exception that was not caught.
int exit_code_of(std::exception_ptr error);

struct Failure {
  FailureKind kind = FailureKind::Died;
  std::string text;
};

// Returns the text as a terminal may see it, because names come from files and wires. Control
// characters, and bytes that are no UTF-8, are spelt out, such as "\x1b". Line ends and tabs stay.
std::string printable(std::string_view text);

// Throws DistributedError, TimeoutError, OutOfStepError or GivenUpError with the failure's text,
// after `context`.
[[noreturn]] void throw_failure(const Failure& failure, const std::string& context = {});

// Returns the failure that an exception stands for, in printable words of at most 300 characters
// each. An exception of the program itself counts as Died.
Failure failure_of(std::exception_ptr error);

// The system has no more threads, or no memory for one's stack.
bool cannot_start_thread(const std::exception& error);

// The exception tells of another rank's failure: this one has only been told of it, or misses a
// rank.
bool is_noticed(std::exception_ptr error);

}  // namespace ringgrad
