// ShardGradients: sums the gradients of single shards over all shards, on every rank.
//
// The hook of a parameter takes a shard's gradient away as soon as it is complete, so the next
// shard begins without one. It joins the gradient with those before it (shard_tree.h). When the
// last of this rank's shards has come, the parameter's partial sums are ready, and its bucket is
// sent to the other ranks while backward goes on. Several threads may compute shards at once, each
// on a replica of the module.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "ringgrad/distributed/buckets/gradient_buckets.h"
#include "ringgrad/distributed/ddp/finite_check.h"
#include "ringgrad/distributed/shards/tree_all_reduce.h"
#include "ringgrad/distributed/zero/gradient_slices.h"

namespace ringgrad {

class ShardGradients : public GradientBuckets {
 public:
  // Collective; see GradientBuckets. `check_finite`: a gradient on the CPU that is NaN or infinite
  // is an error that names rank and parameter. `in_lockstep`: in the middle of a shard others are
  // waited for. `zero`: see VirtualRanksOptions. The group and the tree must outlive this.
  ShardGradients(ProcessGroup& group, const TreeAllReduce& tree, NamedTensors parameters,
                 BucketCaps caps, bool check_finite, bool in_lockstep, int zero);
  ~ShardGradients() override;

  // A step begins: the gradients that there are do not count.
  void begin();
  // Another set of the same parameters, on any device, of which gradients are taken, too. They are
  // numbered from 1 on.
  void add_replica(const std::vector<Tensor>& parameters);
  // From here on backward of this replica (0: the parameters themselves) computes gradients of this
  // rank's shard k, counted from its first one.
  void compute(int k, int replica = 0) { computing_[replica] = k; }
  // The shard's backward, if there was one, has ended. Parameters that it has not reached count as
  // zero.
  void end_shard(int k);
  // All shards have ended. Launches the remaining buckets.
  void end_shards();
  // The same if some of this rank's shards have failed. What they have not computed counts as zero,
  // so that the other ranks need not wait for it.
  void end_failed_shards();
  // Waits for the others' sums, and multiplies the total by `factor`; the result is param.grad.
  void finish(double factor);
  // The next step has the number of this one, which has failed on some rank.
  void take_back() { --step_; }
  // The step has failed. Waits for the collectives under way, which use the arenas. The next step
  // has the same number.
  void give_up();

  // None without ZeRO.
  std::shared_ptr<GradientSlices> slices() const { return slices_; }
  double waited_seconds() const { return waited_; }  // for other ranks in finish(), in all steps

 private:
  struct Joining {
    // In the arenas, one for each partial sum; the last one is param.grad.
    std::vector<Tensor> places;
    // Sums of the shards that have been joined.
    std::vector<PartialSum<Tensor>> sums;
    // By shard of this rank: gradients that have come before their turn.
    std::vector<Tensor> waiting;
    // The number of shards that have been joined.
    size_t joined = 0;
  };

  void gradient_complete(int parameter, const Tensor& leaf) override { take(0, parameter, leaf); }
  Work sum(const GradientBucket& bucket, const CollectiveOptions& options) override;

  void take(int replica, int parameter, const Tensor& leaf);
  void add(int parameter, int k, const Tensor& gradient);
  void place(int parameter);
  void fold_before(size_t bucket);

  const TreeAllReduce& tree_;
  const bool check_finite_;
  const bool in_lockstep_;
  FiniteCheck finite_check_{group_, parameters_, arenas_};
  // By arena: one like it for each partial sum; the last one is its own.
  std::vector<std::vector<Tensor>> flats_;
  std::vector<ScopedHook> replica_hooks_;

  // Guards the members below, and the buckets, while shards are computed.
  std::mutex mutex_;
  // By parameter.
  std::vector<Joining> joining_;
  // By bucket.
  std::vector<TreeAllReduce::Sum> sums_;
  // The number of leading buckets that have been folded, and of those that need no memory.
  size_t folded_ = 0;
  size_t released_ = 0;
  std::shared_ptr<GradientSlices> slices_;  // ZeRO's
  // This rank's shard, by replica; -1: outside a step, where gradients are left alone.
  std::vector<int> computing_{-1};
  double waited_ = 0;
};

}  // namespace ringgrad
