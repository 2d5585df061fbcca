// What the kernel tells of a process of this machine, for those who miss it: does it run, wait for
// a core, or stand still?
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

namespace ringgrad {

struct ProcessState {
  // 'R': one of its threads runs, or could; else 'D': one waits for a disk, or for memory; else
  // 'T': it is stopped; else 'S': it sleeps. 0: there is no such process, or it is not for this one
  // to see.
  char state = 0;
  // For how long a thread of it could have run, and had no core, since it started: the longest of
  // all threads.
  std::chrono::nanoseconds without_core{0};
};

// Throws nothing; `pid` may be of a process that has ended. Linux only: elsewhere nothing is known.
ProcessState process_state(pid_t pid);

// "it is stopped"; of a process that is not known: what it may be.
std::string describe(const ProcessState& process);

}  // namespace ringgrad
