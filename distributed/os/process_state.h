// ProcessState: what the kernel says of a process of this machine: it runs, waits for a core, or is
// stopped. Ranks that miss it ask for this.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace ringgrad {

struct ProcessState {
  // The state of its threads, in this order: one runs, or could; one waits for a disk, or for
  // memory; all are stopped; all sleep. For a process that does not exist, or that this one may not
  // see, the words say what it may be.
  const char* words = "it is stopped, starved, or cut off";
  // For how long a thread of it could have run, and had no core, since it started: the longest of
  // all threads.
  std::chrono::nanoseconds without_core{0};
};

// Throws nothing; `pid` may be of a process that has ended. Set before main by
// processes/process_state.cpp, for Linux; without it nothing is known of any.
using AskForState = ProcessState (*)(pid_t pid);
inline constinit AskForState process_state = [](pid_t) { return ProcessState(); };

}  // namespace ringgrad
