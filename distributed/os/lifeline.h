// No rank outlives its launcher. PR_SET_PDEATHSIG sees to the launcher's own children (child_process.h); this sees to
// ranks that a script between them has started, and is inherited through any number of those.
#pragma once

#include "ringgrad/distributed/os/file_descriptor.h"

namespace ringgrad {

// The launcher's end. Ranks inherit descriptor(), and RINGGRAD_LIFELINE_FD with its number.
class Lifeline {
 public:
  Lifeline();  // Throws IoError.
  int descriptor() const { return held_by_ranks_.get(); }

 private:
  FileDescriptor held_by_ranks_, held_by_launcher_;
};

// The rank's end: from now on the kernel kills this process when the launcher ends, however it does. Nothing happens
// where there is no launcher.
void hold_on_to_lifeline();

}  // namespace ringgrad
