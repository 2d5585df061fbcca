// The backends of process groups that a program may lack: "nccl" is linked or not, and "mpi" is a
// module that is loaded on demand. Each registers itself from its own file, so nothing else is
// compiled differently if one is missing.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/distributed/process_groups/backend.h"

namespace ringgrad {

struct GroupBackend {
  MakeOtherGroup make;  // a file may implement several
  // False if an emulator only connects threads of one process.
  bool between_processes = true;
};

// Called before main, or while a module is loaded, by the file that implements the backend.
void register_group_backend(const std::string& name, GroupBackend backend);

// Returns nullptr if this program lacks the backend; `why`, unless null, then says what to do about
// it. Loads the module of "mpi". Thread-safe.
const GroupBackend* find_group_backend(const std::string& name, std::string* why = nullptr);

std::vector<std::string> available_backends();  // those that connect processes here

}  // namespace ringgrad
