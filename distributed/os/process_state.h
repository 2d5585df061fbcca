// ProcessState: what the kernel says of a process of this machine: it runs, waits for a core, or is
// stopped. Ranks that miss it ask for this.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace ringgrad {

struct ProcessState {
  // One of its threads runs, or could; else one waits for a disk, or for memory; else it is
  // stopped; else it sleeps. Of a process that is not there, or not for this one to see: what it
  // may be.
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
