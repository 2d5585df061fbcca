#include "ringgrad/distributed/elastic_job.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/os/child_process.h"

namespace ringgrad {

ElasticJob::ElasticJob(std::vector<std::string> work, const InitOptions& options)
    : work_(std::move(work)),
      options_(options),
      timeout_(options.timeout.value_or(default_timeout())) {
  CHECK_AS(EnvironmentError, options.backend == "ring", "elastic: backend ", options.backend,
           ", expected ring: only ranks on CPUs may come and go");
  // Multiples of longer ones, and times that they are added to, would overflow.
  CHECK(timeout_.count() > 0 && timeout_ <= std::chrono::seconds(1'000'000),
        "elastic: a timeout of ", timeout_.count(), " ms, expected from 1 to 10^9 of them");
  die_with_launcher();
  raise_descriptor_limit();
  take_rank(rank_environment());
  member_.check_fit(work_);
}

std::shared_ptr<ProcessGroup> ElasticJob::form_group() const {
  set_phase(Phase::Rendezvous);
  ConnectOptions connect;
  connect.check_wanted = [this] { check(); };
  auto group = connect_hosts(
      place_.rank, place_.size, options_, connect,
      [&](const std::string& address) { return member_.exchange(place_, address, timeout_); });
  set_phase(Phase::Setup);
  return of_this_process(std::move(group));
}

bool ElasticJob::run(const std::function<void(ProcessGroup& group)>& body) {
  for (bool timed_out = false;;) {
    const auto place = member_.await_generation(timed_out);
    if (!place) return false;
    place_ = *place;
    own_status().failed_at = 0;  // what was overcome is no failure of this rank
    std::shared_ptr<ProcessGroup> group;
    try {
      group = form_group();
      check_same_lines(*group, "elastic", "work", work_);
      if (group->is_main_process()) member_.publish_work(work_);
      body(*group);
      // Before this barrier any rank may have to repeat the end of the job. The rank that writes
      // may take long.
      group->barrier({.timeout = 10 * timeout_}).wait();
      member_.mark_finished();
      return true;
    } catch (const OutOfStepError&) {
      throw;
    } catch (const DistributedError& error) {
      timed_out = dynamic_cast<const TimeoutError*>(&error) != nullptr;
      if (group) group->abort(str("elastic: generation ", place_.generation, " is over"));
    }
  }
}

}  // namespace ringgrad
