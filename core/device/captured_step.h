// CapturedStep: a training step that is queued operation by operation at first, then recorded as a
// graph and replayed.
//
//   CapturedStep step(device, [&] {
//     optimizer.zero_grad();
//     cross_entropy(model(images), labels).backward();
//     optimizer.step();
//   });
//   for (…) {
//     // What changes from step to step changes in the device's memory.
//     copy_(images, …);
//     optimizer.set_lr(…);
//     step();
//   }
//
// A replay runs the same kernels on the same addresses in the same order: the same bits as the step
// itself. What the step does on the host, it does while it is recorded, and not again. Collectives
// over NCCL are recorded with it, and what they must do on the host at each replay comes with the
// graph (nccl_process_group.h). Where a replay throws because the ranks' group has failed, let this
// go, and make another one with a new group.
#pragma once

#include <functional>
#include <memory>

#include "ringgrad/core/device/device_backend.h"

namespace ringgrad {

class CapturedStep {
 public:
  // Whether a device's steps can be recorded: those of CUDA can, unless RINGGRAD_CUDA_GRAPHS=0, for
  // looking at one operation after the other.
  static bool possible(Device device);

  // `step` queues work on the device's current stream. REQUIRES: the same work each time, on
  // tensors that live as long as this does; it neither waits for the device (item(), to_vector())
  // nor reads the host's memory, for which the device gives CudaError (900,
  // cudaErrorStreamCaptureUnsupported) when it is recorded.
  CapturedStep(Device device, std::function<void()> step);

  // Runs the step once: its work is queued when this returns.
  void operator()();

 private:
  Device device_;
  std::function<void()> step_;
  int runs_ = 0;
  std::unique_ptr<DeviceGraph> graph_;
};

}  // namespace ringgrad
