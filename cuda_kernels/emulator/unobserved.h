// For code of the emulator that runs in the middle of a kernel. It may call functions that a kernel
// has instantiated, too. The linker may have taken the kernel's, which report their accesses.
#pragma once

#include "ringgrad/cuda_kernels/emulator/grid.h"

namespace ringgrad::emulator {

// While one lives, the observer is not notified. A thread that was parked meanwhile must call
// again() afterwards, because other threads' kernel code has run.
class Unobserved {
 public:
  Unobserved() { again(); }
  ~Unobserved() { observing = before_; }
  Unobserved(const Unobserved&) = delete;
  void again() const { observing = false; }

 private:
  const bool before_ = observing;
};

}  // namespace ringgrad::emulator
