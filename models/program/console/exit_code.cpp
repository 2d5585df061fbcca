#include "ringgrad/models/program/console/exit_code.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <initializer_list>
#include <new>
#include <utility>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/distributed/os/child_process.h"
#include "ringgrad/distributed/os/socket.h"

namespace ringgrad::program {

const char* describe(int code) {
  static constexpr std::pair<int, const char*> kWords[] = {{kOk, "success"},
                                                           {kTrainingFailed, "training failed"},
                                                           {kUsage, "usage"},
                                                           {kEnvironment, "the environment lacks something"},
                                                           {kBadData, "bad data or checkpoint"},
                                                           {kRankDied, "a rank died"},
                                                           {kOutOfStep, "timeout, or ranks out of step"},
                                                           {kOutOfMemory, "out of memory"},
                                                           {kDiskFull, "disk or file system"},
                                                           {kInterrupted, "interrupted"}};
  for (const auto& [known, words] : kWords)
    if (known == code) return words;
  return code > 128 ? strsignal(code - 128) : "unknown";
}

std::string failure_line(int code) { return fmt::format("ringgrad: failed (exit {}: {})", code, describe(code)); }

template <class... Types>
static bool is(const std::exception& error) {
  return (... || (dynamic_cast<const Types*>(&error) != nullptr));
}

int exit_code_of(const std::exception& error) {
  if (const auto* job = dynamic_cast<const JobFailed*>(&error)) return job->exit_code;
  if (is<UsageError, EnvironmentError>(error)) return kUsage;
  if (is<NotImplementedError, AddressInUseError, ExecuteError, LimitError, NetworkError>(error))
    return kEnvironment;  // the first: in this build
  if (is<TimeoutError, OutOfStepError>(error)) return kOutOfStep;
  if (is<DistributedError>(error)) return kRankDied;  // what is left of it
  if (is<OutOfMemoryError, std::bad_alloc>(error)) return kOutOfMemory;
  if (is<DeviceError, CudaError>(error)) return kEnvironment;
  if (is<DataError>(error)) return kBadData;
  if (is<IoError, std::filesystem::filesystem_error>(error)) return kDiskFull;
  if (cannot_start_thread(error)) return kEnvironment;
  return kTrainingFailed;
}

namespace {

std::atomic<int> signal_seen = 0;
std::atomic<int64_t> seen_at = 0;  // milliseconds
std::atomic<const char*> said_at_signal = nullptr;

// timeout, systemd and Slurm signal a process and its group, or a launcher and its ranks, which hear of it twice then:
// a signal within half a second is the same order.
void on_signal(int signal) {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);  // a signal handler may
  const int64_t now = time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
  if (signal_seen != 0 && now - seen_at > 500) _exit(128 + signal);
  if (signal_seen == 0) seen_at = now;
  if (const char* text = said_at_signal.exchange(nullptr))
    for (const char* part : {"\n", text, "\n"}) (void)!write(STDERR_FILENO, part, std::strlen(part));
  signal_seen = signal;
}

}  // namespace

void catch_interrupts(const char* said) {
  said_at_signal = said;
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
