// Of several ranks that ended badly: which one was the first, and what does the job end with?
#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/launcher/supervisor.h"

namespace ringgrad {

struct RankEnd {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = -1;
  int wait_status = 0;  // of waitpid
  bool by_us = false;   // it ended after the launcher had begun to kill
  std::chrono::steady_clock::time_point started;
  std::chrono::steady_clock::time_point ended;
};

// What it says it has failed in; "" : nothing.
std::string words(const RankStatus& status);
// A rank that was asked to end, and said so after ending well.
bool ended_as_asked(const RankEnd& end);

// A rank that was killed comes before one that ended by itself, which comes before those that only
// report what they noticed (exit codes 5 and 6); among equals the one that failed first counts. A
// victim is never the first cause. The job ends with the first cause's exit code, where it has one
// of its own. After a signal, only a rank that says it has failed by itself counts.
JobResult first_cause(const std::vector<RankEnd>& ends, const JobStatus& status, int interrupted_by,
                      std::chrono::steady_clock::time_point now);

}  // namespace ringgrad
