// Optimizer: what all of them share. A step is one kernel for each contiguous range of a group's
// parameters, which is one kernel in all where the parameters lie in an arena (autograd/arena.h);
// zero_grad is one fill for each.
//
// Learning rates and the number of steps live on the parameters' device, so that a step that was
// captured in a CUDA graph follows a schedule without being captured anew.
//
// The constructor moves the parameters into an arena, if they do not lie in one. Handles follow; a
// state_dict(), a view or a detach()ed tensor taken before no longer shares memory with them.
// (DistributedDataParallel does the same.)
//
// A parameter that is frozen when the optimizer is made costs nothing. It gets its place (state,
// and a gradient of its own) with the first call after it was unfrozen, and state_dict() has it
// from then on.
//
// Parameters may move afterwards, to another arena, device or dtype: their state follows. But
// Module::to gives each a place of its own, so that a step becomes one kernel per parameter: move
// the model first.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/autograd/arena.h"
#include "ringgrad/nn/named_tensors.h"

namespace ringgrad::optim {

// model.named_parameters(), or just tensors: those are called "0", "1", … in state_dict().
struct ParameterList {
  ParameterList(nn::NamedTensors named) : named(std::move(named)) {}
  ParameterList(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) named.emplace_back("", tensor);
  }
  nn::NamedTensors named;
};

// Some parameters, and how they are to be treated.
template <class Options>
struct ParamGroup {
  ParameterList parameters;
  Options options;
};

// Who steps which part of the parameters, where several processes share that work
// (distributed/sharded_optimizer.h).
class StepShare {
 public:
  virtual ~StepShare() = default;
  // The elements [begin, end) of a flat range of so many that this process steps.
  virtual std::pair<int64_t, int64_t> part(int64_t numel) const = 0;
  // Collective. `flat`, of which every process has its part, becomes whole.
  virtual void gather(const Tensor& flat) const = 0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Keeps the gradients' memory, as PyTorch's zero_grad(set_to_none=False): a parameter that no
  // backward reaches then has a gradient of zero, and momentum and weight decay still move it.
  // (With None, which is PyTorch's default, the ranks of DistributedDataParallel would have to tell
  // each other whose gradients there are.) A parameter that is to stay where it is must be frozen,
  // set_requires_grad(false), for as long as that lasts.
  void zero_grad();
  // With a guard (float64 [] on the parameters' device): where it is NaN instead of 0, nothing
  // changes and no step is counted. So a step can be skipped without asking the device first; see
  // mixed_precision.h. All parameters have one number of steps: Adam's correction of its averages
  // counts those in which a parameter was frozen, too.
  void step(const Tensor& guard = {});
  std::vector<Tensor> flat_grads();  // all gradients, as few flat arrays
  // From now on this process keeps state for its part of the parameters, and steps that alone.
  // step(), state_dict(), which is a copy then, and load_state_dict() are collective. Throws Error
  // after the first step, and where an element's step needs others (Muon).
  void share(std::shared_ptr<const StepShare> share);

  int num_groups() const { return static_cast<int>(groups_.size()); }
  // Throw IndexError where there is no such group.
  double lr(Int group = 0) const { return groups_[checked(group)].lr; }
  void set_lr(Real lr);  // of every group
  void set_lr(Int group, Real lr);

  // "step" (int64), "lr.GROUP" (float64), and what is kept for each parameter:
  // "momentum.layer1.0.conv1.weight". Shares memory with the optimizer until the parameters move.
  nn::NamedTensors state_dict();
  // Strict, see nn::copy_by_name(). After it, training goes on bit for bit.
  void load_state_dict(const nn::NamedTensors& state);

 protected:
  struct GroupSpec {
    ParameterList parameters;
    double lr;
    std::vector<std::string> state_names;  // the arrays kept for each parameter, zero at first
  };
  // Lays all parameters into one arena, in reverse order (flatten_parameters). Parameters that do
  // not require a gradient wait until they do. Throws on undefined tensors, non-leaves, one that
  // comes twice, a negative lr, or several devices; `name` begins the messages.
  Optimizer(const char* name, std::vector<GroupSpec> groups);

  // One step for one range: `state` has a flat array for each of the group's state_names, laid like
  // range.values.
  virtual void update(int group, const ArenaRange& range, const std::vector<Tensor>& state) = 0;
  // Elements are stepped each for itself.
  virtual bool steps_elements() const { return true; }
  // float64 [].
  const Tensor& guarded_lr(int group) const { return groups_[group].guarded_lr; }
  // int64 [], steps taken before.
  const Tensor& step_tensor() const { return step_; }
  // A range's `parameters` are such numbers.
  const Tensor& parameter(int group, int number) const { return groups_[group].parameters[number]; }

 private:
  // The state of the parameters of one range, in arrays laid like it: of this process' part.
  struct StateRange {
    std::vector<int> parameters;
    std::vector<int64_t> offsets;
    int64_t numel;  // of the range
    int64_t begin;
    int64_t end;
    std::vector<Tensor> arrays;  // [end - begin], one for each state name
  };
  struct Group {
    nn::NamedTensors named;
    std::vector<Tensor> parameters;
    double lr = 0;
    Tensor lr_tensor;
    Tensor guarded_lr;
    std::vector<std::string> state_names;
    std::vector<StateRange> state;
  };
  int checked(int group) const;
  void take_in_unfrozen();
  Device device() const;
  void update_range(int group, const ArenaRange& range, const StateRange& state);
  // Where the group's parameters lie now, with the state laid like them.
  std::vector<ArenaRange> current_ranges(Group& group);
  void lay_state(Group& group, const std::vector<ArenaRange>& ranges);
  // The state's ranges with all of their elements: themselves, or copies where it is shared. What
  // was written to them is kept by keep_part().
  std::vector<StateRange> whole_state(const Group& group) const;
  void keep_part(const Group& group, const std::vector<StateRange>& whole) const;
  static nn::NamedTensors state_of(const Group& group, const std::vector<StateRange>& whole);
  nn::NamedTensors whole_state_dict(std::vector<std::vector<StateRange>>& whole);

  const char* name_;
  std::vector<Group> groups_;
  struct Frozen {  // at construction, and ever since
    int group;
    std::string name;
    Tensor parameter;
  };
  std::vector<Frozen> frozen_;
  Tensor step_;
  std::shared_ptr<const StepShare> share_;
};

// Scales all gradients together so that their joint 2-norm is at most max_norm (Pascanu et al.
// 2013), and returns the norm they had, a scalar on their device: nothing waits for it. As in
// PyTorch the factor is max_norm / (norm + 1e-6) where that is below 1. A gradient that is NaN or
// infinite leaves NaN in its place and 0 elsewhere (in PyTorch a NaN spreads to every gradient;
// here it must not reach the gaps of an arena, see autograd/arena.h). Parameters on one device;
// those without a gradient stay without.
Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, Real max_norm);

// Each element of each gradient into [-value, value]. NaN stays. Parameters as above.
void clip_grad_value_(const std::vector<Tensor>& parameters, Real value);

}  // namespace ringgrad::optim
