#include "ringgrad/program/console/exit_code.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <utility>

namespace ringgrad::program {

const char* describe(int code) {
  static constexpr std::pair<int, const char*> kWords[] = {
      {kOk, "success"},
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

std::string failure_line(int code) {
  return fmt::format("ringgrad: failed (exit {}: {})", code, describe(code));
}

int exit_code_of(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const JobFailed& job) {
    return job.exit_code;
  } catch (const UsageError&) {
    return kUsage;
  } catch (...) {
    return ringgrad::exit_code_of(error);
  }
}

namespace {

std::atomic<int> signal_seen = 0;
std::atomic<int64_t> seen_at = 0;  // milliseconds
std::atomic<const char*> said_at_signal = nullptr;

// timeout, systemd and Slurm signal a process and its group, or a launcher and its ranks. The ranks
// then receive the signal twice. So a second signal within half a second counts as the same one.
void on_signal(int signal) {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);  // a signal handler may
  const int64_t now = time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
  if (signal_seen != 0 && now - seen_at > 500) _exit(128 + signal);
  if (signal_seen == 0) seen_at = now;
  if (const char* text = said_at_signal.exchange(nullptr))
    for (const char* part : {"\n", text, "\n"})
      (void)!write(STDERR_FILENO, part, std::strlen(part));
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
