// ShardMeeting: the exchange between a step's shards while they compute, of rows of numbers such as
// batch norm's statistics.
#pragma once

#include "ringgrad/distributed/process_group.h"
#include "ringgrad/distributed/shards/lockstep.h"
#include "ringgrad/distributed/shards/shard_tree.h"

namespace ringgrad {

class ShardMeeting {
 public:
  // `lockstep`: of this rank's shards; nullptr: there is one. It must outlive this.
  ShardMeeting(int shards, ShardRange own, Lockstep* lockstep)
      : shards_(shards),
        own_(own),
        lockstep_(lockstep),
        own_rows_(static_cast<size_t>(own.size())) {}

  // While a Scope lives, this thread computes a shard of the step.
  class Scope;
  // Returns the meeting of this thread; nullptr if it computes no shard that needs others.
  static ShardMeeting* current() { return current_; }

  // In the middle of a shard, by all shards of all ranks: their rows [n], in order, as [shards, n].
  // `group` has the ranks of the step.
  Tensor gather(ProcessGroup& group, const Tensor& row, const CollectiveOptions& options);

 private:
  Tensor exchange(ProcessGroup& group, const Tensor& own, const CollectiveOptions& options) const;

  const int shards_;
  const ShardRange own_;
  Lockstep* const lockstep_;
  std::vector<Tensor> own_rows_;
  Tensor all_;
  static inline constinit thread_local ShardMeeting* current_ = nullptr;
};

class ShardMeeting::Scope {
 public:
  explicit Scope(ShardMeeting& meeting) { current_ = &meeting; }
  ~Scope() { current_ = nullptr; }
  Scope(const Scope&) = delete;
};

}  // namespace ringgrad
