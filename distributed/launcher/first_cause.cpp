#include "ringgrad/distributed/launcher/first_cause.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "ringgrad/core/base/clock.h"

namespace ringgrad {
namespace {

constexpr const char* kInterruptedText = "interrupted: all ranks have ended\n";

bool failed(const RankEnd& end) { return end.wait_status != 0; }
bool killed(const RankEnd& end) { return WIFSIGNALED(end.wait_status); }
int exit_code(const RankEnd& end) {
  return killed(end) ? 128 + WTERMSIG(end.wait_status) : WEXITSTATUS(end.wait_status);
}
bool only_noticed(const RankEnd& end, const RankStatus& status) {
  if (status.failed_at != 0 && status.noticed) return true;  // however it ended after that
  return !killed(end) && (exit_code(end) == kRankDied || exit_code(end) == kOutOfStep);
}

bool out_of_step(const RankEnd& end, const RankStatus& status) {
  return exit_code(end) == kOutOfStep ||
         (status.failed_at != 0 &&
          (status.failure == FailureKind::TimedOut || status.failure == FailureKind::OutOfStep));
}

// Returns the place among the causes, the likeliest first: 0 killed by a signal, 1 failed by
// itself, 2 only noticed another's failure, 3 ended by the launcher.
int order(const RankEnd& end, const RankStatus& status) {
  return end.by_us ? 3 : only_noticed(end, status) ? 2 : killed(end) ? 0 : 1;
}

int64_t failed_at(const RankEnd& end, const JobStatus& status) {
  const int64_t reported = status.rank(end.local_rank).failed_at;
  return reported != 0 ? reported : end.ended.time_since_epoch().count();
}

// "in backward, step 318, last bucket 1"
std::string place(const RankStatus& status) {
  std::string text = fmt::format("in {}", name(status.phase.load()));
  if (const int64_t step = status.step; step > 0) text += fmt::format(", step {}", step - 1);
  if (const int32_t bucket = status.bucket; bucket > 0)
    text += fmt::format(", last bucket {}", bucket - 1);
  return text;
}

std::string describe_cause(const RankEnd& end, const RankStatus& status) {
  const double seconds = seconds_between(end.started, end.ended);
  std::string text = fmt::format("[rank {}] ", end.rank);
  if (killed(end)) {
    const int signal = WTERMSIG(end.wait_status);
    text +=
        fmt::format("was killed by signal {} ({}) {}", signal, strsignal(signal), place(status));
  } else {
    text += fmt::format("ended with exit code {} {}", exit_code(end), place(status));
  }
  text += fmt::format(" (process {}, ran {:.1f} s)", end.pid, seconds);
  if (killed(end) && WTERMSIG(end.wait_status) == SIGKILL)
    text += ". Often that is the kernel, out of memory: see dmesg";
  else if (!words(status).empty())
    text += ": " + words(status);
  return text + "\n";
}

}  // namespace

std::string words(const RankStatus& status) { return status.failed_at != 0 ? status.text : ""; }

bool ended_as_asked(const RankEnd& end) {
  const int signal = exit_code(end) - 128;
  return !killed(end) && (signal == SIGINT || signal == SIGTERM || signal == SIGHUP);
}

JobResult first_cause(const std::vector<RankEnd>& ends, const JobStatus& status, int interrupted_by,
                      std::chrono::steady_clock::time_point now) {
  const auto status_of = [&](const RankEnd& end) -> const RankStatus& {
    return status.rank(end.local_rank);
  };
  std::vector<RankEnd> bad;
  std::ranges::copy_if(ends, std::back_inserter(bad), failed);
  if (bad.empty()) return {};
  if (interrupted_by != 0) {  // then only a rank's own failure counts, such as one of saving
    std::erase_if(bad, [&](const RankEnd& end) {
      return killed(end) || ended_as_asked(end) || status_of(end).failed_at == 0 ||
             status_of(end).noticed;
    });
    if (bad.empty()) return {128 + interrupted_by, kInterruptedText};
  }
  std::ranges::sort(bad, {}, [&](const RankEnd& end) {
    return std::pair(order(end, status_of(end)), failed_at(end, status));
  });

  const RankEnd& first = bad.front();
  const RankStatus& its_status = status_of(first);
  const bool same = std::ranges::all_of(
      bad, [&](const RankEnd& end) { return exit_code(end) == exit_code(first); });
  if (same && ended_as_asked(first)) return {exit_code(first), kInterruptedText};
  const bool alike = same && bad.size() == ends.size() && !killed(first);
  const bool noticed = only_noticed(first, its_status);
  JobResult result;
  if (noticed && out_of_step(first, its_status))
    result.exit_code = kOutOfStep;
  else
    result.exit_code = alike || !(noticed || killed(first)) ? exit_code(first) : kRankDied;
  if (alike && !words(its_status).empty()) return {result.exit_code, words(its_status) + "\n"};
  result.report = describe_cause(first, its_status);
  if (bad.size() > 1 && !alike) {  // one other rank's view is enough
    const RankStatus& other = status_of(bad[1]);
    result.report += fmt::format("[rank {}] was {}{}{}\n", bad[1].rank, place(other),
                                 words(other).empty() ? "" : ": ", words(other));
  }
  if (ends.size() > 1)
    result.report += fmt::format("stopped all {} ranks in {:.1f} s\n", ends.size(),
                                 seconds_between(first.ended, now));
  return result;
}

}  // namespace ringgrad
