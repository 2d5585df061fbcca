// Records what a thread's kernels do and how long they take, like torch.profiler.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad {

// The numbers exclude those of the kernels that this one called, so that sums count nothing twice.
struct KernelCall {
  const char* kernel;
  DType dtype;  // its first tensor's dtype
  double milliseconds;
  // Multiplications and additions by the definition, whatever the algorithm. It is 0 except for
  // convolutions and matrix products.
  double operations;
  double bytes;  // the size of its tensors: the least that must be read or written
  // The algorithm of a convolution of ours, for the user: "Winograd F(4, 3)".
  std::string plan = {};
};

// Records every kernel that this thread calls while it exists. On CUDA each call then waits for its
// end, so kernels no longer overlap; their times are the device's. While a step is being captured
// nothing runs, and the times are 0. REQUIRES: destroyed by its own thread, the newest first.
class KernelProfile : private KernelObserver {
 public:
  KernelProfile();
  ~KernelProfile() override;
  KernelProfile(const KernelProfile&) = delete;

  // Returns the calls in the order in which they ended.
  const std::vector<KernelCall>& calls() const { return calls_; }

 private:
  void call(const ObservedCall& observed, const std::function<void()>& run) override;

  KernelObserver* previous_;
  struct Sum {
    double milliseconds = 0;
    double operations = 0;
    double bytes = 0;
  };
  Sum inner_;  // kernels called by the running one
  std::vector<KernelCall> calls_;
};

}  // namespace ringgrad
