// Ctrl-C and SIGTERM ask for a clean end: the step in progress is finished and saved. A second one, half a second later
// or more, ends at once.
#pragma once

#include <csignal>

namespace ringgrad::program {

void catch_interrupts();
int interrupted();  // the signal that asked for the end, or 0

// While it lives, such signals wait, so that none is lost between asking interrupted() and a launcher that takes over.
class InterruptsHeld {
 public:
  InterruptsHeld();
  ~InterruptsHeld();
  InterruptsHeld(const InterruptsHeld&) = delete;
  InterruptsHeld& operator=(const InterruptsHeld&) = delete;

 private:
  sigset_t before_;
};

}  // namespace ringgrad::program
