// The ProcessGroup of ranks with a GPU each: NCCL on tensors in device memory.
// init_process_group({.backend = "nccl"}) makes one.
//
// A collective is queued on a stream of the group's own, after what the caller's stream holds by
// then; Work::wait() makes the caller's stream wait for it; the host waits for nothing. Tensors on
// the CPU travel through `host`, the ranks' group over TCP or shared memory, which also tells the
// ranks NCCL's name for theirs.
//
// NCCL does not compare what the ranks call. Beside every collective the hosts meet, each with its
// frame, so that ranks that disagree, and one that does not come, are named as they are on CPUs.
//
// While a step is captured (core/device/captured_step.h) its collectives become a part of the
// graph, on the group's stream, which leaves the caller's and comes back to it as it does outside:
// so they overlap in the replays as they do in the step itself. All ranks must capture the same
// step, and replay it equally often, one replay for another ("Using NCCL with CUDA Graphs" in
// NCCL's manual: both are collective). The hosts meet beside each collective when it is recorded,
// and once beside each replay, asynchronously, with the step's number where the reducer knows it.
// So a replay has a deadline, too, that of the group.
//
// When a collective or a replay is not done in time, ranks disagree, or NCCL reports an error, the
// group is given up: the device's work ends, and the collective's Work, every later call and every
// later replay throw the reason (nccl_communicator.h). What has been recorded is of no use any
// more: let the graph go, make a new group, and capture the step anew.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/vendor_groups/nccl_communicator.h"

namespace ringgrad {

enum class NcclAllReduce : uint8_t {
  Library,  // ncclAllReduce
  Ring,     // ours over ncclSend and ncclRecv: what NCCL does, to read and to measure
};

struct NcclOptions {
  NcclAllReduce all_reduce = NcclAllReduce::Library;
  // Of the ring. One small enough to overlap and large enough not to be all latency; not yet
  // measured on a GPU.
  size_t segment_bytes = 4 << 20;
  std::chrono::milliseconds timeout = default_timeout();  // of connecting, and of every collective
  // What the device gets to end its work when the group has been given up; then the process ends.
  std::chrono::milliseconds last_resort = default_timeout();
};

class NcclProcessGroup final : public ProcessGroup {
 public:
  // Collective. `device` is this rank's, a CUDA device. Throws TimeoutError when NCCL has not
  // connected the ranks in time, CudaError when it cannot.
  NcclProcessGroup(std::shared_ptr<ProcessGroup> host, Device device,
                   const NcclOptions& options = {});
  // What is under way is waited for, until its deadline, here or where the last Work that is held
  // ends; after an exception it is given up.
  ~NcclProcessGroup() override;

  std::string backend() const override;
  std::shared_ptr<Storage> allocate_shared(size_t bytes, Device device = {}) override;
  std::shared_ptr<ProcessGroup> split(int color, int key = 0) override;
  void abort(const std::string& reason, FailureKind kind) override;

 private:
  class Pending;

  Work issue(Collective collective) override;
  Work issue_on_host(Collective collective);
  static Work agree(ProcessGroup& host, const Frame& frame, const CollectiveOptions& options);
  void join_replays();
  void call_nccl(const Collective& collective, ncclComm* comm);
  void exchange_parts(const Collective& collective, ncclComm* comm, bool same_to_all);

  std::shared_ptr<ProcessGroup> host_;
  NcclOptions options_;
  std::unique_ptr<cuda::OwnedStream> adding_;  // of the ring, or nullptr
  std::shared_ptr<NcclCommunicator> communicator_;
  uint64_t recordings_ = 0;
};

// Our ring all-reduce for ranks with a GPU each: distributed/collectives/ring.h's schedule, carried
// by ncclSend and ncclRecv.
//
// In the body of communicator.queue(): queues on its stream what makes x[n], contiguous on the
// communicator's device, the reduction of all ranks' x, bit for bit the same everywhere and the
// same as ring_all_reduce() on the CPU; the host waits for nothing. A segment is added on `adding`,
// another stream of the device, while the next one travels. Returns the memory it works in, which
// must be kept until all of that is done: twice a chunk, in float32 for the 16-bit floats. Throws
// DTypeError for bool.
std::vector<Tensor> nccl_ring_all_reduce(NcclCommunicator& communicator, Stream adding,
                                         const Tensor& x, ReduceOp op, size_t segment_bytes);

}  // namespace ringgrad
