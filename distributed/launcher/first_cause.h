// Finds the first cause among ranks that failed, and the exit code of the job.
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
  int wait_status = 0;  // the status that waitpid() gave
  bool by_us = false;   // it ended after the launcher had begun to kill
  std::chrono::steady_clock::time_point started;
  std::chrono::steady_clock::time_point ended;
};

// Returns the rank's own words about its failure; "" if it has said nothing.
std::string words(const RankStatus& status);
// A rank that was asked to end, and said so after ending well.
bool ended_as_asked(const RankEnd& end);

// Returns the job's result from how its ranks ended. A rank that was killed comes before one that
// failed by itself. Both come before ranks that only report another one's failure (exit codes 5 and
// 6). Among equals the earliest failure counts, and a victim is never the first cause. The job ends
// with the first cause's exit code if it has one of its own. After a signal to the launcher, only a
// rank that says it has failed by itself counts.
JobResult first_cause(const std::vector<RankEnd>& ends, const JobStatus& status, int interrupted_by,
                      std::chrono::steady_clock::time_point now);

}  // namespace ringgrad
