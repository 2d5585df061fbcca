// CapturedStep: a training step that is queued operation by operation at first, then recorded as a
// graph and replayed.
//
//   CapturedStep step(device, [&] {
//     optimizer.zero_grad();
//     cross_entropy(model(images), labels).backward();
//     optimizer.step();
//   });
//   for (…) {
//     // Data that differs from step to step is changed in the device's memory.
//     copy_(images, …);
//     optimizer.set_lr(…);
//     step();
//   }
//
// A replay runs the same kernels on the same addresses in the same order, so it gives the same bits
// as the step itself. The step's work on the host happens while it is recorded and not in replays.
// Collectives over NCCL are recorded, too. Their work on the host belongs to the graph, and each
// replay does it (nccl_process_group.h). If a replay throws because the ranks' group has failed,
// destroy this object and make another one with a new group.
#pragma once

#include <functional>
#include <memory>

#include "ringgrad/core/device/device_backend.h"

namespace ringgrad {

class CapturedStep {
 public:
  // Returns true if steps of the device can be recorded. This holds for CUDA unless
  // RINGGRAD_CUDA_GRAPHS=0, which helps to look at one operation after the other.
  static bool possible(Device device);

  // `step` queues work on the device's current stream. REQUIRES: the step does the same work each
  // time, on tensors that outlive this object. It neither waits for the device (item(),
  // to_vector()) nor reads the host's memory. A step that does throws CudaError (900,
  // cudaErrorStreamCaptureUnsupported) when it is recorded.
  CapturedStep(Device device, std::function<void()> step);

  // Runs the step once. All its work is queued on return.
  void operator()();

 private:
  Device device_;
  std::function<void()> step_;
  int runs_ = 0;
  std::unique_ptr<DeviceGraph> graph_;
};

}  // namespace ringgrad
