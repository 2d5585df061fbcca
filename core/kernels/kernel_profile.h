// What the kernels of a thread do, and how long they take: the kernel table's torch.profiler.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad {

// The numbers are without those of the kernels that it called itself, so that sums count nothing
// twice.
struct KernelCall {
  const char* kernel;
  DType dtype;  // of its first tensor
  double milliseconds;
  // Multiplications and additions by the definition, whatever the algorithm; 0 except for
  // convolutions and matrix products.
  double operations;
  double bytes;  // of its tensor arguments: what must be read or written at least once
  // A convolution's algorithm, for people, where ours is the one that runs: "Winograd F(4, 3)".
  std::string plan = {};
};

// Records every kernel that this thread calls while it exists. On CUDA each call then waits for its
// end, so kernels no longer overlap with anything; their times are the device's, and 0 where a step
// is being captured, which runs nothing. REQUIRES: destroyed by its own thread, the newest first.
class KernelProfile : private KernelObserver {
 public:
  KernelProfile();
  ~KernelProfile() override;
  KernelProfile(const KernelProfile&) = delete;

  // In the order in which they ended.
  const std::vector<KernelCall>& calls() const { return calls_; }

 private:
  void call(const ObservedCall& observed, const std::function<void()>& run) override;

  KernelObserver* previous_;
  struct Sum {
    double milliseconds = 0;
    double operations = 0;
    double bytes = 0;
  };
  Sum inner_;  // of the kernels that the running one has called
  std::vector<KernelCall> calls_;
};

}  // namespace ringgrad
