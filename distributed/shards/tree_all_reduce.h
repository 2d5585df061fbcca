// TreeAllReduce: the sum of all ranks' partial sums, added in the tree's order (shard_tree.h), on
// every rank.
//
// It is a reduce-scatter and an all-gather by direct messages. Each rank owns a slice of the
// elements, receives that slice of every partial sum, adds them in the order of shards, and sends
// the result to all. With one partial sum on each rank that moves as many bytes as a ring, 2
// (n-1)/n of the buffer. A small buffer is sent to all ranks whole, and all add it up. With two
// ranks the group's own all-reduce is enough, because there is only one order.
#pragma once

#include <vector>

#include "ringgrad/distributed/process_group.h"
#include "ringgrad/distributed/shards/shard_tree.h"

namespace ringgrad {

class TreeAllReduce {
 public:
  // The group must outlive this. REQUIRES: as many shards as ranks, at least.
  TreeAllReduce(ProcessGroup& group, int shards);

  ShardRange own_shards() const { return shards_of_rank(group_.rank(), group_.size(), shards_); }
  int shards() const { return shards_; }
  size_t own_partial_sums() const { return partials_[group_.rank()].size(); }

  // A sum under way. Its tensors must be left alone until finish().
  struct Sum {
    // [n] each, contiguous: this rank's partial sums, in order.
    std::vector<Tensor> own;
    // The slices of each rank's partial sums [partial sums, slice], by rank; empty if there is
    // nothing to add here.
    std::vector<Tensor> received;
    bool in_slices = false;
    // The total is wanted in this rank's slice alone.
    bool own_slice_only = false;
    CollectiveOptions options;
    Work work;
  };

  // Collective, all three: on all ranks in the same order, each for every sum. start() and fold()
  // leave their messages to the group's thread, fold() waits for those of start(), and finish() for
  // its own. Then the total is in own.back(), or with `own_slice_only` in chunk_of() (ring.h) of it
  // that is this rank's.
  Sum start(std::vector<Tensor> own, CollectiveOptions options, bool own_slice_only = false) const;
  void fold(Sum& sum) const;
  void finish(Sum& sum) const { sum.work.wait(); }

 private:
  ProcessGroup& group_;
  const int shards_;
  std::vector<std::vector<ShardRange>> partials_;  // by rank
};

// Returns left + right, in memory of its own.
Tensor sum_of(const Tensor& left, const Tensor& right);

}  // namespace ringgrad
