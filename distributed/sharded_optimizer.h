// ZeRO (Rajbhandari, Rasley, Ruwase & He 2020, section 5): ranks that train the same network divide
// the optimizer's state (stage 1), and the gradients, too (stage 2). Each rank averages and steps
// its slices of the parameters, and then all slices are gathered, on CPUs while the next forward
// begins (Note [Parameters that arrive] in zero/gradient_slices.h). As many bytes travel as without
// it, and the numbers are those of the undivided step: bit for bit, wherever the ranks' gradients
// are added in the same order (zero/gradient_slices.h).
//
//   DistributedDataParallel ddp(net, group, {.zero = 1});
//   ShardedOptimizer<optim::AdamW> optimizer(ddp, ddp.named_parameters(), optim::AdamWOptions{});
//
// Adam keeps two numbers for each parameter; each of n ranks keeps an n-th of them. The wrapper may
// be a VirtualRanks as well. AdamW needs 16 bytes for each float32 parameter. On n ranks it needs
// 8 + 8 / n with stage 1, and 4 + 12 / n with stage 2.
#pragma once

#include "ringgrad/nn/optim/optimizer.h"

namespace ringgrad {

// An optimizer whose state is divided among the ranks of the wrapper's group (PyTorch's
// ZeroRedundancyOptimizer). The wrapper and the group must outlive it. All ranks give the same
// options and parameters, which are the wrapper's, and call step(), state_dict() and
// load_state_dict() together. A state_dict() holds the whole state, and any number of ranks can go
// on with it. zero_grad() is for the gradients of all the wrapper's parameters: where several
// optimizers share them, call it after the last one's step. Throws Error for an optimizer that does
// not step elements independently (Muon), and if the wrapper has no option `zero`.
template <class Base>
class ShardedOptimizer : public Base {
 public:
  template <class Wrapper, class... Args>
  explicit ShardedOptimizer(Wrapper& wrapper, Args&&... args) : Base(std::forward<Args>(args)...) {
    this->share(wrapper.step_share());
  }
};

}  // namespace ringgrad
