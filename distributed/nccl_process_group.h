// The ProcessGroup of ranks with a GPU each: NCCL on tensors in device memory.
//
// A collective is queued on a stream of the group's own, after what the caller's stream holds by then; Work::wait()
// makes the caller's stream wait for it. The host waits for nothing, so a step with its collectives can be captured in
// a CUDA graph. Tensors on the CPU travel through `host`, the ranks' group over TCP or shared memory, which also tells
// the ranks NCCL's name for theirs.
//
// NCCL's kernels wait forever for a rank that has died. A thread of the group therefore looks after them: when a
// collective is not done in time, or NCCL reports an error, it ends the communicator, on which the device's work ends,
// and gives up `host`, so that the other ranks learn the reason. The collective's Work and every later call throw it.
#pragma once

#include <chrono>
#include <memory>

#include "distributed/process_group.h"
#include "distributed/rendezvous.h"

namespace ringgrad {

class NcclProcessGroup final : public ProcessGroup {
 public:
  // Collective. `device` is this rank's, a CUDA device. Throws TimeoutError when NCCL has not connected the ranks in
  // time, CudaError when it cannot.
  NcclProcessGroup(std::shared_ptr<ProcessGroup> host, Device device,
                   std::chrono::milliseconds timeout = default_timeout());
  // Gives up what is under way, as an exception that unwinds would leave it.
  ~NcclProcessGroup() override;

  std::string backend() const override;
  bool reaches(Device device) const override;
  std::shared_ptr<Storage> allocate_shared(size_t bytes, Device device = {}) override;
  std::shared_ptr<ProcessGroup> split(int color, int key = 0) override;
  void abort(const std::string& reason, FailureKind kind) override;

 private:
  class Communicator;  // knows NCCL
  class Pending;

  Work issue(Collective collective) override;
  Work issue_on_host(const Collective& collective);

  std::shared_ptr<ProcessGroup> host_;
  Device device_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace ringgrad
