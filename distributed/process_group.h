// ProcessGroup: the collectives of a group of ranks, on tensors.
//
// Every rank of the group must call the same collectives in the same order, with the same shapes,
// dtypes and options. Ranks that do not get an OutOfStepError that names both sides.
//
// The ranks' tensors may have different memory layouts, because the elements travel in row-major
// order. A tensor that is not contiguous (transposed, sliced, channel-blocked) costs a copy before
// the collective, and one after it if it is written. An input that shares memory with the output is
// copied first. Tensors of a list that are written must not share memory.
//
// A group belongs to the process that made it: in a forked child every call throws Error, and
// nothing is sent.
//
// Failure: a collective throws DistributedError when a rank died or gave up, TimeoutError when one
// is missing for longer than the group's timeout, OutOfStepError when ranks disagree. The group is
// dead then: the contents of its tensors are undefined, and every later call throws the first cause
// again. Some mistakes are seen by one rank alone: an undefined tensor, a wrong shape, dtype or
// device, a rank that does not exist. They are refused before anything is sent, and the group lives
// on.
//
// Thread-safety: calls from several threads are executed one after another, in some order, so
// threads help only where the order does not matter to other ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ringgrad/core/base/fork.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/failure.h"
#include "ringgrad/distributed/transport/frame.h"
#include "ringgrad/distributed/work.h"

namespace ringgrad {

// The algorithms of all-reduce between ranks on CPUs (init_process_group.h), the simplest first.
// Their speed depends on the size (`ringgrad bench allreduce` measures it).
enum class AllReduceAlgorithm : uint8_t {
  // SharedMemory if all ranks share memory. Else shared memory within machines and messages between
  // them, if each has equally many ranks. Else messages: Exchange for a few kilobytes or two ranks,
  // Direct for a few ranks, or SegmentedRing. The number of ranks alone decides for the last one,
  // whose sums are added in another order.
  Auto,
  // Everything goes through rank 0.
  GatherBroadcast,
  // Every rank sends everything to every other rank.
  Exchange,
  // Whole chunks travel.
  Ring,
  // Chunks in segments: one travels while another is reduced.
  SegmentedRing,
  // Nothing travels.
  SharedMemory,
  // Every rank reduces a slice for all.
  Direct,
};

// Says which messages between ranks on CPUs carry a CRC-32C of their payload. With it a bit that
// the network flips is an error that names the link. Without it every rank would get the same wrong
// sum. Sums in shared memory send no messages.
enum class Checksums : uint8_t {
  Auto,  // for messages over a network, if the program has them: TCP's own checksum has 16 bits
  On,    // Throws Error in a program that cannot.
  Off,
};

// Sees the payload of every message that a rank sends, when it is queued.
using SendObserver = std::function<void(int peer, std::span<const std::byte> payload)>;

struct CollectiveOptions {
  // false: the collective is done when the call returns; the calling thread executes it if
  // possible. true: the group's own thread or stream executes it, in the order of issue. The
  // tensors must not be touched until wait().
  bool async = false;
  // These describe the collective in error messages. Ranks compare them, except for `about`.
  int64_t step = -1;
  int32_t bucket = -1;
  uint64_t layout = 0;                            // a hash of the buffer's layout
  std::shared_ptr<const std::string> about = {};  // "conv2.weight conv1.weight"
  int tag = 0;  // send and recv: which of several messages between two ranks is meant
  // The longest wait in which nothing moves, up to 10^10 ms; 0: the group's timeout. A timeout ends
  // the group.
  std::chrono::milliseconds timeout = std::chrono::milliseconds(0);
};

// One call, as a backend sees it. The tensors have been checked, and are contiguous.
struct Collective {
  Operation operation;
  Tensor input;
  Tensor output;
  ReduceOp reduce_op = ReduceOp::Sum;
  // The peer, of send and recv.
  int root = -1;
  CollectiveOptions options = {};
  // The caller's tensors, if `output` only stands in for them: it holds their elements, one tensor
  // after the other.
  std::vector<Tensor> destinations = {};
  // Elements of the input for each rank, and of the output from each. Empty: all ranks' parts are
  // of one size.
  std::vector<int64_t> input_counts = {};
  std::vector<int64_t> output_counts = {};
  // A barrier's: the collective about which the ranks are to agree.
  std::optional<Frame> stands_for = {};

  // It is one half of an all-reduce, in place: every rank's slice lies in its own array.
  bool in_slices() const {
    return output && input.is_same(output) &&
           (operation == Operation::ReduceScatter || operation == Operation::AllGather);
  }
  // The tensor that is as large on every rank, if one is; undefined in a barrier.
  const Tensor& part() const {
    const bool whole_comes_in =
        operation == Operation::ReduceScatter || operation == Operation::Scatter;
    return whole_comes_in || !input || !output_counts.empty() ? output : input;
  }
};

// Called by a backend once the output is complete, and before it says so. Copies it to the caller's
// tensor, on the current stream of its device.
void deliver(const Collective& collective);

// Returns the frame's description of a collective, as every backend fills it in. Only hosts add
// job, sequence and algorithm.
Frame frame_of(const Collective& collective);

// "all_reduce (average) of 1000 float32, step 12, bucket 1 (conv2.weight conv1.weight)"
std::string describe(const Collective& collective);

class ProcessGroup {
 public:
  ProcessGroup(int rank, int size, Device device = {})
      : rank_(rank), size_(size), device_(device) {}
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_main_process() const { return rank_ == 0; }
  virtual std::string backend() const = 0;  // "shared memory", "ring over tcp", "mpi"
  // The device on which this rank computes: its GPU in a group that connects GPUs (nccl), else the
  // CPU.
  Device device() const { return device_; }
  // Returns true if tensors on that device can take part: the CPU always, and device().
  bool reaches(Device device) const { return device.is_cpu() || device == device_; }

  // x becomes the reduction of all ranks' x, bit for bit the same on all ranks.
  Work all_reduce(const Tensor& x, ReduceOp op = ReduceOp::Sum,
                  const CollectiveOptions& options = {});
  // The root's x replaces all others'.
  Work broadcast(const Tensor& x, Int root, const CollectiveOptions& options = {});
  // The root's x becomes the reduction of all ranks' x; on the other ranks it stays as it is.
  Work reduce(const Tensor& x, Int root, ReduceOp op = ReduceOp::Sum,
              const CollectiveOptions& options = {});
  // The root's y [size · numel(x)] becomes all ranks' x in the order of ranks; on other ranks y is
  // ignored.
  Work gather(const Tensor& y, const Tensor& x, Int root, const CollectiveOptions& options = {});
  // y becomes this rank's part of the root's x [size · numel(y)]; on other ranks x is ignored.
  Work scatter(const Tensor& y, const Tensor& x, Int root, const CollectiveOptions& options = {});
  // y [size · numel(x)] becomes all ranks' x in the order of ranks.
  Work all_gather(const Tensor& y, const Tensor& x, const CollectiveOptions& options = {});
  // The same with parts of any shapes: parts[r] becomes rank r's x. All ranks know all the shapes.
  Work all_gather(const std::vector<Tensor>& parts, const Tensor& x,
                  const CollectiveOptions& options = {});
  // y becomes part number rank() of every rank's x, in the order of ranks; both are [size · n].
  Work all_to_all(const Tensor& y, const Tensor& x, const CollectiveOptions& options = {});
  // The same with parts of any shapes: from[r] becomes rank r's to[rank()].
  Work all_to_all(const std::vector<Tensor>& from, const std::vector<Tensor>& to,
                  const CollectiveOptions& options = {});
  // y becomes this rank's part of the reduction of all ranks' x [size · numel(y)].
  Work reduce_scatter(const Tensor& y, const Tensor& x, ReduceOp op = ReduceOp::Sum,
                      const CollectiveOptions& options = {});
  // The two halves of all_reduce, in place. Slice r of x, of n elements, is chunk_of({0, n},
  // size(), r) (collectives/ring.h). reduce_slices() makes slice rank() that of the reduction, with
  // the bits of all_reduce() wherever that adds in the same order; the other slices hold nothing of
  // use. gather_slices() replaces the other slices by those of their ranks.
  Work reduce_slices(const Tensor& x, ReduceOp op = ReduceOp::Sum,
                     const CollectiveOptions& options = {});
  Work gather_slices(const Tensor& x, const CollectiveOptions& options = {});
  // Messages between two ranks. recv() receives what was sent to it with its tag, from `peer` or
  // from any rank (kAnyRank; then Work::source() tells which one). Messages of one rank arrive in
  // the order in which it sent them. Both sides must mean the same shape, dtype and step.
  //
  // Sends and receives wait neither for each other nor for collectives. So both ranks may receive
  // first (asynchronously), or both send first: a receiver that waits for any message keeps the
  // others in memory. A send is done when its tensor may change; that says nothing about the
  // receiver. On a GPU (nccl) there are neither tags nor kAnyRank, and messages travel one after
  // the other, so one of two ranks must send first.
  Work send(const Tensor& x, Int peer, const CollectiveOptions& options = {});
  Work recv(const Tensor& x, Int peer, const CollectiveOptions& options = {});
  // Done when all ranks have called it.
  Work barrier(const CollectiveOptions& options = {});

  // Collective: returns memory of this rank on a device that the group reaches, for tensors that
  // are all-reduced often, such as gradients. If the ranks share memory, all of them see it, and
  // all_reduce then moves nothing but the sums. All ranks ask for the same size.
  virtual std::shared_ptr<Storage> allocate_shared(size_t bytes, Device device = {}) = 0;

  // Collective: a new group of the ranks that give the same color, ordered by key, then by rank; a
  // negative color: no group, nullptr. If a group of hosts fails, so do those that were split off
  // it: their ranks would wait for one that the failure has stopped.
  virtual std::shared_ptr<ProcessGroup> split(int color, int key = 0) = 0;

  // Returns true for the first user that asks, until that user ends. Several users of the group in
  // one backward pass would issue collectives in a different order on each rank, so only one may
  // issue them during the pass.
  bool lead(const std::shared_ptr<const void>& user) {
    if (!leader_.expired()) return false;
    leader_ = user;
    return true;
  }

  // Gives the group up: every rank's current and later calls throw the error of this kind, with
  // this reason. Any thread may call it.
  virtual void abort(const std::string& reason, FailureKind kind = FailureKind::Died) = 0;
  // Returns the failure that has ended a group of hosts, as far as this rank knows without asking.
  // This includes a rank that died while no collective ran. Returns nothing if the backend does not
  // know. Any thread may call it.
  virtual std::optional<Failure> failure() { return {}; }

 protected:
  virtual Work issue(Collective collective) = 0;
  // For a group that passes a collective on to another.
  static Work issue_in(ProcessGroup& group, Collective c) { return group.issue(std::move(c)); }
  void check_process(const char* call) const;  // throws Error in a forked child

 private:
  Work submit(Collective collective);
  void check_peer(Operation operation, int peer) const;

  int rank_;
  int size_;
  Device device_;
  int forks_ = forks;
  std::weak_ptr<const void> leader_;
};

}  // namespace ringgrad
