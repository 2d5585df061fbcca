// ZeRO, stage 1 (Rajbhandari, Rasley, Ruwase & He 2020, section 5.1): ranks that train the same
// network divide the optimizer's state. Each rank steps its part of the parameters, and then all
// parts are gathered. The numbers are those of the undivided step, bit for bit, because each
// element is stepped independently.
//
//   DistributedDataParallel ddp(net, group);
//   ShardedOptimizer<optim::AdamW> optimizer(group, ddp.named_parameters(), optim::AdamWOptions{});
//
// Adam keeps two numbers for each parameter; each of n ranks keeps an n-th of them. After the step
// the parameters travel, which is half as many bytes as for the sums of gradients.
#pragma once

#include <utility>

#include "ringgrad/distributed/process_group.h"
#include "ringgrad/nn/optim/optimizer.h"

namespace ringgrad {

// For Optimizer::share(). The group must outlive it.
class RankShare : public optim::StepShare {
 public:
  explicit RankShare(ProcessGroup& group) : group_(group) {}
  std::pair<int64_t, int64_t> part(int64_t numel) const override;
  void gather(const Tensor& flat) const override;

 private:
  int64_t part_size(int64_t numel) const;
  ProcessGroup& group_;
};

// An optimizer whose state is divided among the ranks of the group (PyTorch's
// ZeroRedundancyOptimizer). The group must outlive it. All ranks give the same parameters and
// options, and call step(), state_dict() and load_state_dict() together. A state_dict() holds the
// whole state, and any number of ranks can go on with it. Throws Error for an optimizer that does
// not step elements independently (Muon).
template <class Base>
class ShardedOptimizer : public Base {
 public:
  template <class... Args>
  explicit ShardedOptimizer(ProcessGroup& group, Args&&... args)
      : Base(std::forward<Args>(args)...) {
    this->share(std::make_shared<RankShare>(group));
  }
};

}  // namespace ringgrad
