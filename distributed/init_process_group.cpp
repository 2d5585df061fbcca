#include "distributed/init_process_group.h"

#include <mutex>

#include "core/check.h"
#include "distributed/connect.h"
#include "distributed/job_status.h"
#include "distributed/ring_process_group.h"
#include "distributed/store.h"

namespace ringgrad {
namespace {

std::mutex mutex;
// Never destroyed: a program that ends without destroy_process_group() leaves without a goodbye.
std::shared_ptr<ProcessGroup>& job_group = *new std::shared_ptr<ProcessGroup>();

}  // namespace

std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options) {
  return init_process_group(rendezvous_from_environment(), options);
}

std::shared_ptr<ProcessGroup> init_process_group(const Rendezvous& rendezvous, const InitOptions& options) {
  CHECK(!is_process_group_initialized(), "init_process_group: the job has a process group already");
  set_phase(Phase::Rendezvous);
  const StoreOptions store{rendezvous.address, rendezvous.secret, options.timeout};
  ConnectOptions connect;
  connect.channel = options.channel;
  connect.secret = rendezvous.secret;
  connect.timeout = options.timeout;
  if (rendezvous.size > 1) connect.host = address_towards(rendezvous.address.host);
  Connected connected = connect_ranks(rendezvous.rank, rendezvous.size, connect, [&](const std::string& value) {
    return meet(rendezvous.rank, rendezvous.size, value, store);
  });
  RingOptions ring;
  ring.algorithm = options.algorithm;
  ring.timeout = options.timeout;
  ring.checksums = options.checksums;
  ring.job = connected.job;
  ring.connect = connect;
  auto group = std::make_shared<RingProcessGroup>(std::move(connected.transport), ring);
  set_phase(Phase::Setup);
  std::lock_guard lock(mutex);
  job_group = group;
  return group;
}

ProcessGroup& process_group() {
  std::lock_guard lock(mutex);
  CHECK(job_group != nullptr, "process_group: there is none; call init_process_group() first");
  return *job_group;
}

bool is_process_group_initialized() {
  std::lock_guard lock(mutex);
  return job_group != nullptr;
}

void destroy_process_group() {
  std::unique_lock lock(mutex);
  const auto group = std::move(job_group);
  job_group = nullptr;
}

std::shared_ptr<ProcessGroup> local_process_group(ProcessGroup& group) {
  return group.split(static_cast<int>(machine_id() & 0x7fffffff), group.rank());
}

}  // namespace ringgrad
