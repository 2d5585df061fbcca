// Optimizer: the base of all optimizers. A step is one kernel for each contiguous range of a
// group's parameters, and zero_grad is one fill for each. If the parameters lie in an arena
// (autograd/arena.h), that is one for each group.
//
// Learning rates and the number of steps live on the parameters' device. So a step that was
// captured in a CUDA graph follows a schedule without a new capture.
//
// The constructor moves the parameters into an arena unless they lie in one. Handles follow. A
// state_dict(), a view or a detach()ed tensor taken before no longer shares memory with them.
// (DistributedDataParallel does the same.)
//
// A parameter that is frozen at construction costs nothing. It gets its state and its gradient with
// the first call after it was unfrozen, and state_dict() contains it from then on.
//
// Parameters may move afterwards to another arena, device or dtype; their state follows. But
// Module::to places each parameter separately, so that a step becomes one kernel per parameter.
// Move the model first.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/autograd/step_share.h"
#include "ringgrad/nn/named_tensors.h"

namespace ringgrad::optim {

// model.named_parameters(), or a list of tensors, which state_dict() calls "0", "1", ….
struct ParameterList {
  ParameterList(nn::NamedTensors named) : named(std::move(named)) {}
  ParameterList(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) named.emplace_back("", tensor);
  }
  nn::NamedTensors named;
};

// Some parameters and their options.
template <class Options>
struct ParamGroup {
  ParameterList parameters;
  Options options;
};

using StepShare = ringgrad::StepShare;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Keeps the gradients' memory, like PyTorch's zero_grad(set_to_none=False). A parameter that no
  // backward reaches then has a gradient of zero, and momentum and weight decay still move it. To
  // keep a parameter fixed, freeze it with set_requires_grad(false). (With None, PyTorch's default,
  // the ranks of DistributedDataParallel would have to tell each other which gradients exist.)
  void zero_grad();
  // If `guard` (float64 [] on the parameters' device) is NaN instead of 0, nothing changes and the
  // step is not counted. So a step can be skipped without asking the device; see mixed_precision.h.
  // All parameters share one number of steps. Adam's bias correction also counts steps in which a
  // parameter was frozen.
  void step(const Tensor& guard = {});
  // All gradients, in as few arrays as possible; if the steps are shared, those of this process's
  // parts.
  std::vector<Tensor> flat_grads();
  // Makes this process keep the state of its parts of the parameters only, and step those alone.
  // Then step(), load_state_dict() and state_dict(), which returns a copy, are collective. Throws
  // Error after the first step, and if an element's step depends on other elements (Muon).
  void share(std::shared_ptr<const StepShare> share);
  // None: the steps are not shared.
  const StepShare* step_share() const { return share_.get(); }

  int num_groups() const { return static_cast<int>(groups_.size()); }
  // These throw IndexError if the group does not exist.
  double lr(Int group = 0) const { return groups_[checked(group)].lr; }
  void set_lr(Real lr);  // for all groups
  void set_lr(Int group, Real lr);

  // Returns "step" (int64), "lr.GROUP" (float64), and the state of each parameter:
  // "momentum.layer1.0.conv1.weight". Shares memory with the optimizer until the parameters move.
  nn::NamedTensors state_dict();
  // Strict, see nn::copy_by_name(). Training then continues bit for bit.
  void load_state_dict(const nn::NamedTensors& state);

 protected:
  struct GroupSpec {
    ParameterList parameters;
    double lr;
    std::vector<std::string> state_names;  // arrays kept for each parameter, initially zero
    bool maximize = false;                 // update() receives the gradients with the other sign
  };
  // Moves all parameters into one arena, in reverse order (flatten_parameters). Parameters that do
  // not require a gradient wait until they do. Throws on undefined tensors, non-leaves, a parameter
  // given twice, a negative lr, or several devices; `name` begins the messages.
  Optimizer(const char* name, std::vector<GroupSpec> groups);

  // Takes one step for one range. `state` has a flat array for each of the group's state_names, in
  // the layout of range.values.
  virtual void update(int group, const ArenaRange& range, const std::vector<Tensor>& state) = 0;
  // Returns true if the step of an element does not depend on other elements.
  virtual bool steps_elements() const { return true; }
  // Returns the group's learning rate (float64 []), or NaN if the guard forbids the step.
  const Tensor& guarded_lr(int group) const { return groups_[group].guarded_lr; }
  // Returns the number of steps taken before (int64 []).
  const Tensor& step_tensor() const { return step_; }
  // `number` is an element of a range's `parameters`.
  const Tensor& parameter(int group, int number) const { return groups_[group].parameters[number]; }

 private:
  using StateRange = StepShare::State;  // an array for each state name
  struct Group {
    nn::NamedTensors named;
    std::vector<Tensor> parameters;
    double lr = 0;
    Tensor lr_tensor;
    Tensor guarded_lr;
    std::vector<std::string> state_names;
    bool maximize = false;
    std::vector<StateRange> state;
    int64_t layout = -1;  // the share's, of `state`
  };
  int checked(int group) const;
  void take_in_unfrozen();
  Device device() const;
  void update_range(int group, const ArenaRange& range, const StateRange& state);
  // Returns the group's present ranges, and moves the state to their layout if it has changed.
  std::vector<ArenaRange> current_ranges(Group& group);
  void lay_state(Group& group, const std::vector<ArenaRange>& ranges);
  // Returns the parameters' state by name: views of the arrays or, if it is shared, copies of all
  // processes' parts. keep() copies such a state into the arrays.
  nn::NamedTensors state_of(const Group& group) const;
  void keep(const Group& group, const nn::NamedTensors& state) const;

  const char* name_;
  std::vector<Group> groups_;
  struct Frozen {  // frozen at construction and ever since
    int group;
    std::string name;
    Tensor parameter;
  };
  std::vector<Frozen> frozen_;
  Tensor step_;
  std::shared_ptr<const StepShare> share_;
  std::shared_ptr<void> shares_;  // while it lives, clip_grad_norm_() finds this optimizer
};

// Returns the optimizers that share the steps of some of these parameters. Throws Error if one of
// them has parameters that are not in the list.
std::vector<Optimizer*> sharing_optimizers(const char* name, const std::vector<Tensor>& parameters);

}  // namespace ringgrad::optim
