#include "ringgrad/distributed/init_process_group.h"

#include <mutex>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/fork.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/os/child_process.h"
#include "ringgrad/distributed/process_groups/backend.h"
#include "ringgrad/distributed/process_groups/host_process_group.h"
#include "ringgrad/distributed/rendezvous/rendezvous.h"

namespace ringgrad {
namespace {

std::mutex mutex;
BEFORE_MAIN(job_group, hold_over_fork(mutex));
// Never destroyed: a program that ends without destroy_process_group() leaves without a goodbye.
std::shared_ptr<ProcessGroup>& job_group = *new std::shared_ptr<ProcessGroup>();
int born_after = 0;  // forks: a child has a copy that is its parent's

std::shared_ptr<ProcessGroup> make_ring(const RankEnvironment& environment,
                                        const InitOptions& options) {
  CHECK_AS(EnvironmentError, environment.size == 1 || !environment.address.host.empty(),
           "rendezvous: the job's ", environment.size,
           " ranks are on several machines; set MASTER_ADDR to an address of rank 0's "
           "machine, on all of them");
  const auto timeout = options.rendezvous_timeout.value_or(default_rendezvous_timeout());
  const auto foreign =
      environment.local_size == environment.size ? IfForeign::Fail : IfForeign::ListenOnAll;
  const RendezvousOptions rendezvous{environment.address, environment.secret, timeout, foreign};
  ConnectOptions connect;
  connect.secret = environment.secret;
  if (!environment.reached_at.empty())
    connect.host = environment.reached_at;
  else if (networks && environment.size > 1)
    connect.host = networks->address_towards(environment.address.host, Deadline::after(timeout));
  return connect_hosts(environment.rank, environment.size, options, connect,
                       [&](const std::string& value) {
                         return meet(environment.rank, environment.size, value, rendezvous);
                       });
}

std::shared_ptr<ProcessGroup> make_group(const RankEnvironment& environment,
                                         const InitOptions& options) {
  const auto make_hosts = [&] { return make_ring(environment, options); };
  if (options.backend == "ring") return make_hosts();
  CHECK_AS(NotImplementedError, make_other_group,
           "init_process_group: this program is linked without backend ", options.backend,
           "; link all of ringgrad::ringgrad, or use ring");
  return make_other_group({options.backend, environment, options.device,
                           options.timeout.value_or(default_timeout()), make_hosts});
}

}  // namespace

std::shared_ptr<ProcessGroup> connect_hosts(int rank, int size, const InitOptions& options,
                                            ConnectOptions connect, const Exchange& exchange) {
  connect.transport = options.transport;
  connect.backend = options.backend;
  connect.timeout = options.timeout.value_or(default_timeout());
  Connected connected = connect_ranks(rank, size, connect, exchange);
  HostOptions ring;
  ring.algorithm = options.algorithm;
  ring.timeout = connect.timeout;
  ring.checksums = options.checksums.value_or(default_checksums());
  ring.on_send = options.on_send;
  ring.job = connected.job;
  ring.machines = connected.machines;
  ring.connect = connect;
  return std::make_shared<HostProcessGroup>(std::move(connected.transport), ring);
}

std::string default_backend(Device device) {
  return variable("RINGGRAD_BACKEND", device.is_cuda() ? "nccl" : "ring");
}
std::string default_transport() { return variable("RINGGRAD_TRANSPORT", "auto"); }
Checksums default_checksums() {
  const std::string value = variable("RINGGRAD_CHECKSUMS", "auto");
  if (value == "on") return Checksums::On;
  if (value == "off") return Checksums::Off;
  CHECK_AS(EnvironmentError, value == "auto", "RINGGRAD_CHECKSUMS is '", value,
           "', expected auto, on or off");
  return Checksums::Auto;
}

std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options) {
  return init_process_group(rank_environment(), options);
}

std::shared_ptr<ProcessGroup> init_process_group(const RankEnvironment& environment,
                                                 const InitOptions& options) {
  CHECK(!is_process_group_initialized(), "init_process_group: the job has a process group already");
  // The same limits as RINGGRAD_TIMEOUT's; longer ones overflow.
  for (const auto timeout : {options.timeout, options.rendezvous_timeout})
    CHECK(!timeout || (timeout->count() > 0 && *timeout <= std::chrono::seconds(1'000'000)),
          "init_process_group: a timeout of ", timeout->count(),
          " ms, expected from 1 to 10^9 of them");
  die_with_launcher();
  take_rank(environment);
  raise_descriptor_limit();
  set_phase(Phase::Rendezvous);
  auto group = of_this_process(make_group(environment, options));
  set_phase(Phase::Setup);
  std::lock_guard lock(mutex);
  job_group = group;
  born_after = forks;
  return group;
}

ProcessGroup& process_group() {
  std::lock_guard lock(mutex);
  CHECK(job_group != nullptr, "process_group: there is none; call init_process_group() first");
  CHECK(born_after == forks, "process_group: this process was forked from rank ", job_group->rank(),
        " of ", job_group->size(), ", and a forked child is no member of the group");
  return *job_group;
}

bool is_process_group_initialized() {
  std::lock_guard lock(mutex);
  return job_group != nullptr && born_after == forks;
}

void destroy_process_group() {
  std::shared_ptr<ProcessGroup> group;  // goes after the lock: its threads may take their time
  std::lock_guard lock(mutex);
  group.swap(job_group);
}

}  // namespace ringgrad
