#include "ringgrad/distributed/job/job_members.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/job/rank_environment.h"

namespace ringgrad {

bool in_elastic_job() { return !launchers_variable(kMembersDescriptor).empty(); }

std::unique_ptr<JobMembers> make_job_members(ElasticRange range, int founders,
                                             std::chrono::milliseconds timeout) {
  CHECK(job_members_maker, "launch: ", range.min, " to ", range.max,
        " ranks are asked for, but this program is linked without elastic jobs; link all of "
        "ringgrad::ringgrad, or give one number of ranks");
  return job_members_maker(range, founders, timeout);
}

}  // namespace ringgrad
