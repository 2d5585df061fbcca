// NcclProcessGroup: the group of ranks with one GPU each, with NCCL for tensors in device memory.
// init_process_group({.backend = "nccl"}) makes one.
//
// A collective is queued on a stream of the group's own, after the work on the caller's stream.
// Work::wait() makes the caller's stream wait for it; the host waits for nothing. Tensors on the
// CPU travel through `host`, the ranks' group over TCP or shared memory, which also gives the ranks
// the name of their NCCL communicator.
//
// NCCL does not compare what the ranks call. So the hosts exchange their frames beside every
// collective, and ranks that disagree, or do not come, are named as they are on CPUs.
//
// While a step is captured (core/device/captured_step.h) its collectives become part of the graph.
// They are on the group's stream, which leaves the caller's stream and comes back to it as outside
// a capture, so they overlap in the replays, too. All ranks must capture the same step, and replay
// it equally often, in the same order ("Using NCCL with CUDA Graphs" in NCCL's manual: both are
// collective). The hosts meet beside each collective when it is recorded, and once beside each
// replay, asynchronously, with the step's number if the reducer knows it. So a replay has a
// deadline, too, that of the group.
//
// The group is given up if a collective or a replay is not done in time, ranks disagree, or NCCL
// reports an error. The device's work then ends, and the collective's Work, every later call and
// every later replay throw the reason (nccl_communicator.h). A recording is of no use then: release
// the graph, make a new group, and capture the step anew.
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
  Ring,     // ours over ncclSend and ncclRecv: the same as NCCL's, to read and to measure
};

struct NcclOptions {
  NcclAllReduce all_reduce = NcclAllReduce::Library;
  // The size of a ring's segment: small enough to overlap, and large enough that latency does not
  // dominate. Not yet measured on a GPU.
  size_t segment_bytes = 4 << 20;
  // The time for connecting, and for every collective.
  std::chrono::milliseconds timeout = default_timeout();
  // The time that the device gets to end its work after the group was given up. Then the process
  // ends.
  std::chrono::milliseconds last_resort = default_timeout();
};

class NcclProcessGroup final : public ProcessGroup {
 public:
  // Collective. `device` is this rank's, a CUDA device. Throws TimeoutError when NCCL has not
  // connected the ranks in time, CudaError when it cannot.
  NcclProcessGroup(std::shared_ptr<ProcessGroup> host, Device device,
                   const NcclOptions& options = {});
  // Waits for what is under way, until its deadline, here or when the last Work is released. After
  // an exception the group is given up instead.
  ~NcclProcessGroup() override;

  std::string backend() const override;
  std::shared_ptr<Storage> allocate_shared(size_t bytes, Device device = {}) override;
  std::shared_ptr<ProcessGroup> split(int color, int key = 0) override;
  void abort(const std::string& reason, FailureKind kind) override;
  std::optional<Failure> failure() override;

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
  std::unique_ptr<cuda::OwnedStream> adding_;  // the ring's, or nullptr
  std::shared_ptr<NcclCommunicator> communicator_;
  uint64_t recordings_ = 0;
};

// Our ring all-reduce for ranks with a GPU each: distributed/collectives/ring.h's schedule, carried
// by ncclSend and ncclRecv.
//
// Called in the body of communicator.queue(). Queues work on its stream that makes x[n], contiguous
// on the communicator's device, the reduction of all ranks' x. The bits are the same on all ranks,
// and the same as those of ring_all_reduce() on the CPU. The host waits for nothing. A segment is
// added on `adding`, another stream of the device, while the next one travels. Returns the memory
// that it works in, which must be kept until all of that is done: twice a chunk, in float32 for the
// 16-bit floats. Throws DTypeError for bool.
std::vector<Tensor> nccl_ring_all_reduce(NcclCommunicator& communicator, Stream adding,
                                         const Tensor& x, ReduceOp op, size_t segment_bytes);

}  // namespace ringgrad
