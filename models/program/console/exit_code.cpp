#include "ringgrad/models/program/console/exit_code.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <initializer_list>
#include <new>

#include <fmt/format.h>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/error.h"
#include "ringgrad/distributed/failure.h"
#include "ringgrad/distributed/os/child_process.h"
#include "ringgrad/distributed/os/socket.h"

namespace ringgrad::program {

const char* describe(int code) {
  switch (code) {
    case kOk:
      return "success";
    case kTrainingFailed:
      return "training failed";
    case kUsage:
      return "usage";
    case kEnvironment:
      return "the environment lacks something";
    case kBadData:
      return "bad data or checkpoint";
    case kRankDied:
      return "a rank died";
    case kOutOfStep:
      return "timeout, or ranks out of step";
    case kOutOfMemory:
      return "out of memory";
    case kDiskFull:
      return "disk or file system";
    case kInterrupted:
      return "interrupted";
    default:
      return code > 128 ? strsignal(code - 128) : "unknown";
  }
}

std::string failure_line(int code) { return fmt::format("ringgrad: failed (exit {}: {})", code, describe(code)); }

int exit_code_of(const std::exception& error) {
  const auto is = [&]<class Type>() { return dynamic_cast<const Type*>(&error) != nullptr; };
  if (const auto* job = dynamic_cast<const JobFailed*>(&error)) return job->exit_code;
  if (is.template operator()<UsageError>() || is.template operator()<EnvironmentError>()) return kUsage;
  if (is.template operator()<NotImplementedError>()) return kEnvironment;  // this build has no such part
  if (is.template operator()<AddressInUseError>() || is.template operator()<ExecuteError>()) return kEnvironment;
  if (is.template operator()<TimeoutError>() || is.template operator()<OutOfStepError>()) return kOutOfStep;
  if (is.template operator()<DistributedError>()) return kRankDied;
  if (is.template operator()<OutOfMemoryError>() || is.template operator()<std::bad_alloc>()) return kOutOfMemory;
  if (is.template operator()<DeviceError>() || is.template operator()<CudaError>()) return kEnvironment;
  if (is.template operator()<DataError>()) return kBadData;
  if (is.template operator()<IoError>() || is.template operator()<std::filesystem::filesystem_error>())
    return kDiskFull;
  if (cannot_start_thread(error)) return kEnvironment;
  return kTrainingFailed;
}

namespace {

std::atomic<int> signal_seen = 0;
std::atomic<int64_t> seen_at = 0;  // milliseconds

// timeout, systemd and Slurm signal a process and its group, or a launcher and its ranks, which hear of it twice then:
// a signal within half a second is the same order.
void on_signal(int signal) {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);  // a signal handler may
  const int64_t now = time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
  if (signal_seen != 0 && now - seen_at > 500) _exit(128 + signal);
  if (signal_seen == 0) seen_at = now;
  signal_seen = signal;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // nohup ignores it
}

int interrupted() { return signal_seen; }

InterruptsHeld::InterruptsHeld() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, &before_);
}

InterruptsHeld::~InterruptsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace ringgrad::program
