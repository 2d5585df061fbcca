// A process of the job: it has an environment and pipes of its own, and never outlives the
// launcher.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "ringgrad/core/error.h"
#include "ringgrad/distributed/os/file_descriptor.h"

namespace ringgrad {

// A program that is not there, or may not be executed.
struct ExecuteError : IoError {
  using IoError::IoError;
};

struct ChildOptions {
  // Program and arguments; the program is searched in PATH.
  std::vector<std::string> command;
  // The program that is executed instead, under the command's name.
  std::string program = {};
  // These are set in addition to this process's variables.
  std::map<std::string, std::string> environment;
  // Descriptors that stay open, under the same numbers.
  std::vector<int> inherited;
  // 0: a new group, led by the child.
  pid_t process_group = 0;
  // False: its output goes through the pipes below.
  bool own_output = false;
  // False: its input is /dev/null.
  bool own_input = false;
};

struct ChildProcess {
  pid_t pid = -1;
  FileDescriptor handle;  // a pidfd: ready when the child has ended
  // The pipe with its output; empty with own_output.
  FileDescriptor output;
  FileDescriptor error;
};

// Returns this process's variables and these, as NAME=VALUE.
std::vector<std::string> merged_environment(const std::map<std::string, std::string>& more);

// Starts a child that the kernel kills when this process dies, however it dies (PR_SET_PDEATHSIG).
// Throws ExecuteError, naming the program, when it cannot be executed, LimitError when the system
// has no more processes or this one may have no more open files.
ChildProcess start_child(const ChildOptions& options);

// No rank outlives its launcher. PR_SET_PDEATHSIG sees to the launcher's own children
// (child_process.h); this sees to ranks that a script between them has started, and is inherited
// through any number of those.

// The launcher's end. Ranks inherit descriptor(), and RINGGRAD_LIFELINE_FD with its number.
class LauncherPipe {
 public:
  LauncherPipe();  // Throws IoError.
  int descriptor() const { return held_by_ranks_.get(); }

 private:
  FileDescriptor held_by_ranks_;
  FileDescriptor held_by_launcher_;
};

// The rank's end of it: from now on the kernel kills this process when the launcher ends, however
// it ends. Without a launcher nothing happens.
void die_with_launcher();

}  // namespace ringgrad
