// The backends of process groups that a program may lack: "nccl" is linked into it or not, "mpi" is
// a module that is loaded when somebody asks for it. Each registers itself from its own file, so
// that nothing else is compiled differently where one is missing.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// What a backend's group is made from.
struct GroupRequest {
  // The name asked for: one file may implement several.
  std::string backend;
  const RankEnvironment& environment;
  // As in InitOptions.
  std::optional<Device> device;
  // The time that connecting may take, and every collective.
  std::chrono::milliseconds timeout;
  // Collective: returns the ring of the job's hosts.
  std::function<std::shared_ptr<ProcessGroup>()> connect_hosts;
};

struct GroupBackend {
  std::shared_ptr<ProcessGroup> (*make)(const GroupRequest& request) = nullptr;
  // False where an emulator connects the threads of one process only.
  bool between_processes = true;
};

// Called before main, or while a module is loaded, by the file that implements the backend. Returns
// true.
bool register_group_backend(const std::string& name, GroupBackend backend);

// nullptr where this program lacks the backend; `why`, unless null, then says what to do about it.
// Loads the module of "mpi". Thread-safe.
const GroupBackend* find_group_backend(const std::string& name, std::string* why = nullptr);

}  // namespace ringgrad
