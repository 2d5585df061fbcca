// Process groups other than the hosts' ring, which a program may lack.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// The description of a group that is to be made.
struct GroupRequest {
  // The name that was asked for.
  std::string backend;
  const RankEnvironment& environment;
  // As in InitOptions.
  std::optional<Device> device;
  // The time that connecting may take, and every collective.
  std::chrono::milliseconds timeout;
  // Collective: returns the ring of the job's hosts.
  std::function<std::shared_ptr<ProcessGroup>()> connect_hosts;
};

// Throws EnvironmentError for an unknown name, NotImplementedError for a backend that this program
// lacks. vendor_groups/backend.cpp sets it before main; nullptr in a program without that file.
using MakeOtherGroup = std::shared_ptr<ProcessGroup> (*)(const GroupRequest& request);
inline constinit MakeOtherGroup make_other_group = nullptr;

}  // namespace ringgrad
