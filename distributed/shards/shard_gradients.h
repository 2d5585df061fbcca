// ShardGradients: from the gradients of single shards to their sum over all shards, on every rank.
//
// The hook of a parameter takes a shard's gradient away as soon as it is complete, so that the next
// shard begins without one, and joins it with those before (shard_tree.h). When the last of this
// rank's shards has come, the parameter's partial sums go where its bucket begins its way to the
// other ranks: while backward goes on. Several threads may compute shards at once, each on a
// replica of the module.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/distributed/ddp/finite_check.h"
#include "ringgrad/distributed/ddp/gradient_arenas.h"
#include "ringgrad/distributed/shards/tree_all_reduce.h"

namespace ringgrad {

class ShardGradients {
 public:
  // Collective. `parameters` are leaves that require grad, the same on all ranks. Moves values and
  // gradients into arenas. `check_finite`: a gradient on the CPU that is NaN or infinite is an
  // error that names rank and parameter. `in_lockstep`: in the middle of a shard others are waited
  // for. The group and the tree must outlive this.
  ShardGradients(ProcessGroup& group, const TreeAllReduce& tree, NamedTensors parameters,
                 BucketCaps caps, bool check_finite, bool in_lockstep);

  // A step begins: the gradients that there are do not count.
  void begin(int64_t step);
  // Another set of the same parameters, on any device, of which gradients are taken, too. They are
  // numbered from 1 on.
  void add_replica(const std::vector<Tensor>& parameters) {
    watch(static_cast<int>(computing_.size()), parameters);
  }
  // From here on backward of this replica (0: the parameters themselves) computes gradients of this
  // rank's shard number k, counted from its first one.
  void compute(int k, int replica = 0) { computing_[replica] = k; }
  // Its backward, if there was one, is over: what it has not reached counts as zero.
  void end_shard(int k);
  // All shards have ended: waits for the others' sums, and multiplies the total by `factor`:
  // param.grad.
  void finish(double factor);
  // The step has failed: waits for what is under way, which reads and writes the arenas.
  void abandon();

  double waited_seconds() const { return waited_; }  // for other ranks in finish(), in all steps

 private:
  struct Bucket {
    std::vector<Tensor> partial_sums;  // ranges of the arenas: this rank's, in order
    std::shared_ptr<const std::string> about;
    int pending = 0;  // parameters whose partial sums are not complete yet
    TreeAllReduce::Sum sum;
  };
  struct Parameter {
    // In the arenas, one for each partial sum; the last one is param.grad.
    std::vector<Tensor> places;
    // The buckets that it reaches into.
    std::vector<int> buckets;
    // Sums of the shards that have been joined.
    std::vector<PartialSum<Tensor>> sums;
    // By shard of this rank: gradients that have come before their turn.
    std::vector<Tensor> waiting;
    // The number of shards that have been joined.
    size_t joined = 0;
  };

  void plan(const BucketCaps& caps);
  void watch(int replica, const std::vector<Tensor>& parameters);
  void take(int parameter, int k, const Tensor& gradient);
  void place(int parameter);
  void start_ready_buckets();
  void fold_before(size_t bucket);

  ProcessGroup& group_;
  const TreeAllReduce& tree_;
  const NamedTensors named_;
  const SoleAverager sole_averager_{"virtual_ranks", named_};
  const bool check_finite_, in_lockstep_;
  std::vector<ArenaRange> arenas_;
  std::vector<Parameter> parameters_;
  std::vector<Bucket> buckets_;  // in the order in which they leave
  uint64_t layout_ = 0;          // compared between ranks
  FiniteCheck finite_check_{group_, named_, arenas_};
  std::vector<ScopedHook> hooks_;

  // Guards parameters and buckets while shards are computed, and what is below.
  std::mutex mutex_;
  // By replica: this rank's shard; -1: outside a step, where gradients are left alone.
  std::vector<int> computing_;
  int64_t step_ = -1;
  // Numbers of buckets.
  size_t started_ = 0, folded_ = 0;
  double waited_ = 0;
};

}  // namespace ringgrad
