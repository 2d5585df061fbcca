// Several ranks ended badly: which one was the first?
#include "ringgrad/distributed/launcher/first_cause.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>

#include <fmt/format.h>

#include "ringgrad/distributed/os/file_descriptor.h"
#include "ringgrad/program/learn/grading.h"
#include "ringgrad/program/learn/learn.h"
#include "ringgrad/program/learn/learners_code.h"

namespace ringgrad::program {
namespace dead_rank_exercise {
namespace {

// The way in which a rank ends.
struct Fate {
  int rank;
  int exit_code = 0;
  int signal = 0;              // that kills it; else it ends with the code
  std::string says = "";       // what it reports before; "": nothing
  bool noticed = false;        // it says that of another rank
  bool by_us = false;          // the launcher had begun to kill
  bool reports_first = false;  // long before it ends, as one does that cleans up
};

// A rank of the job: it reports, and ends when it is told to.
class DoomedRank {
 public:
  DoomedRank(const Fate& fate, const JobStatus& status)
      : fate_(fate), started_(std::chrono::steady_clock::now()) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw LimitError("learn: no socket for a rank");
    ours_ = FileDescriptor(ends[0]);
    const FileDescriptor its(ends[1]);
    pid_ = fork();
    if (pid_ < 0) throw LimitError("learn: no process for a rank");
    if (pid_ == 0) live(status.descriptor(), its.get());
    char begun;
    (void)!read(ours_.get(), &begun, 1);  // it has reported, if it is one that does so first
  }

  RankEnd end() {
    (void)!write(ours_.get(), "", 1);
    int status = 0;
    waitpid(pid_, &status, 0);
    return {fate_.rank,
            fate_.rank,
            pid_,
            status,
            fate_.by_us,
            started_,
            std::chrono::steady_clock::now()};
  }

 private:
  [[noreturn]] void live(int status, int socket) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("RINGGRAD_STATUS_FD", std::to_string(status).c_str(), 1);
    setenv("LOCAL_RANK", std::to_string(fate_.rank).c_str(), 1);
    set_phase(Phase::Backward);
    const auto report = [&] {
      if (!fate_.says.empty()) report_failure({FailureKind::Died, fate_.says}, fate_.noticed);
    };
    if (fate_.reports_first) report();
    char byte = 0;
    (void)!write(socket, &byte, 1);
    (void)!read(socket, &byte, 1);
    if (!fate_.reports_first) report();
    if (fate_.signal != 0) raise(fate_.signal);
    _exit(fate_.exit_code);
  }

  Fate fate_;
  std::chrono::steady_clock::time_point started_;
  pid_t pid_;
  FileDescriptor ours_;
};

std::string described(const std::vector<Fate>& fates) {
  std::string text;
  for (const Fate& f : fates)
    text += fmt::format("  rank {}  {}{}{}\n", f.rank,
                        f.signal != 0 ? fmt::format("killed by signal {}", f.signal)
                                      : fmt::format("exit code {}", f.exit_code),
                        f.by_us ? ", when the launcher ended the job" : "",
                        f.says.empty()
                            ? ""
                            : fmt::format("; it {}said{}: {}", f.reports_first ? "had long " : "",
                                          f.noticed ? ", of another rank" : "", f.says));
  return text;
}

// The ranks end in this order, and the launcher's report must begin with `culprit`.
void check_job(decltype(&first_cause) find, const std::vector<Fate>& fates, int culprit,
               int exit_code) {
  const JobStatus status(static_cast<int>(fates.size()));
  std::map<int, DoomedRank> ranks;
  for (const bool early : {true, false})
    for (const Fate& fate : fates)
      if (fate.reports_first == early) ranks.try_emplace(fate.rank, fate, status);
  std::vector<RankEnd> ends;
  for (const Fate& fate : fates) ends.push_back(ranks.at(fate.rank).end());
  const JobResult result = find(ends, status, 0, std::chrono::steady_clock::now());
  const std::string named = fmt::format("[rank {}]", culprit);
  if (!result.report.starts_with(named) || result.exit_code != exit_code)
    throw Wrong(
        fmt::format("They ended one after the other:\n{}the report should begin with {}, "
                    "and the job end with exit code {}; it ends with {}, and says:\n{}",
                    described(fates), named, exit_code, result.exit_code, result.report));
}

void grade(Grading& grading, const LearnersCode& code) {
  const auto find = code.instead_of(&first_cause);
  const std::string lost = "rank 1 has ended without a word";
  grading.check("a rank is killed, and the others notice", [=] {
    check_job(find,
              {{.rank = 1, .signal = SIGKILL},
               {.rank = 0, .exit_code = kRankDied, .says = lost, .noticed = true},
               {.rank = 2, .exit_code = kRankDied, .says = lost, .noticed = true}},
              1, kRankDied);
  });
  grading.check("the others' ends are seen before that of the one that was killed", [=] {
    check_job(find,
              {{.rank = 0, .exit_code = kRankDied, .says = lost, .noticed = true},
               {.rank = 2, .exit_code = kRankDied},
               {.rank = 1, .signal = SIGKILL}},
              1, kRankDied);
  });
  grading.check("a program gives up by itself, and is seen last", [=] {
    check_job(find,
              {{.rank = 0, .exit_code = kRankDied, .says = "rank 2 has ended", .noticed = true},
               {.rank = 1, .exit_code = kOutOfStep},
               {.rank = 2, .exit_code = 3, .says = "no such device"}},
              2, 3);
  });
  grading.check("one that only noticed may end with any exit code", [=] {
    check_job(find,
              {{.rank = 0, .exit_code = 9, .says = "rank 1 has ended", .noticed = true},
               {.rank = 1, .exit_code = 4, .says = "a damaged file"}},
              1, 4);
  });
  grading.check("those that the launcher has killed are victims", [=] {
    check_job(find,
              {{.rank = 0, .signal = SIGKILL, .by_us = true},
               {.rank = 1, .signal = SIGTERM, .by_us = true},
               {.rank = 2, .exit_code = 1, .says = "the loss is NaN"}},
              2, 1);
  });
  grading.check("of two that failed by themselves, the one that said so first", [=] {
    check_job(find,
              {{.rank = 0, .exit_code = 1, .says = "the loss is NaN"},
               {.rank = 1, .exit_code = 4, .says = "a damaged file", .reports_first = true}},
              1, 4);
  });
}

}  // namespace
}  // namespace dead_rank_exercise

const Exercise exercises::kDeadRank = {
    .name = "naming the dead rank",
    .source = "distributed/launcher/first_cause.cpp",
    .blanks = {"bool only_noticed(", "int order(", "int64_t failed_at("},
    .task =
        R"(
When a rank dies, all others fail within milliseconds, and the launcher sees their ends in any order: who was the
first? It sorts the ranks by order(), smaller first, then by failed_at(), and blames the first.

A rank that was killed comes before one that ended by itself; that one before those that have only noticed that
another failed: their status says so (failed_at != 0 and noticed), whatever they end with then, or they end with
exit code kRankDied or kOutOfStep. Those that ended after the launcher had begun to kill (by_us) are never the
cause.

failed_at() is when a rank has reported its failure, in nanoseconds of the steady clock, if it has; else when it
ended: it may have cleaned up for long.

killed() and exit_code() stand above, RankEnd in first_cause.h, RankStatus in distributed/job/job_status.h.)",
    .grade = dead_rank_exercise::grade,
};

}  // namespace ringgrad::program
