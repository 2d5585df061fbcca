#include "ringgrad/nn/optim/optimizer.h"

#include <algorithm>
#include <map>
#include <set>

#include "ringgrad/autograd/classifier_ops.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/gradient_home.h"
#include "ringgrad/autograd/graph.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/classifier_kernels.h"
#include "ringgrad/core/program_observer.h"

namespace ringgrad::optim {
namespace {

void check_lr(const char* name, double lr) {
  CHECK(lr >= 0, name, ": the learning rate is ", lr, ", expected at least 0");
}

}  // namespace

Optimizer::Optimizer(const char* name, std::vector<GroupSpec> specs) : name_(name) {
  std::vector<Tensor> all;
  std::set<std::string> names;
  std::set<const void*> seen;
  int position = 0;
  for (GroupSpec& spec : specs) {
    check_lr(name, spec.lr);
    Group group;
    group.lr = spec.lr;
    group.state_names = spec.state_names;
    group.maximize = spec.maximize;
    for (auto& [given_name, parameter] : spec.parameters.named) {
      const std::string own_name = given_name.empty() ? std::to_string(position) : given_name;
      ++position;
      CHECK(parameter.defined() && parameter.is_leaf(), name, ": parameter '", own_name,
            "' is undefined or was computed from others, expected a leaf");
      CHECK(seen.insert(&autograd_meta(parameter)).second && names.insert(own_name).second, name,
            ": parameter '", own_name, "' comes twice");
      CHECK_AS(DeviceError, all.empty() || all[0].device() == parameter.device(), name,
               ": parameter '", own_name, "' is on ", parameter.device(), ", the first one on ",
               all[0].device(), ", expected one device");
      if (!parameter.requires_grad()) {
        frozen_.push_back({static_cast<int>(groups_.size()), own_name, parameter});
        continue;
      }
      group.named.emplace_back(own_name, parameter);
      group.parameters.push_back(parameter);
      all.push_back(parameter);
    }
    groups_.push_back(std::move(group));
  }
  CHECK(!all.empty(), name, ": there are no parameters that require a gradient");

  NoGradGuard no_grad;
  flatten_parameters(all);
  step_ = zeros({}, {.dtype = DType::Int64, .device = all[0].device()});
  for (Group& group : groups_)
    group.lr_tensor = full({}, group.lr, {.dtype = DType::Float64, .device = all[0].device()});
}

void Optimizer::take_in_unfrozen() {
  for (const auto& [number, name, parameter] : frozen_) {
    if (!parameter.requires_grad()) continue;
    Group& group = groups_[number];
    group.named.emplace_back(name, parameter);
    group.parameters.push_back(parameter);
    group.layout = 0;  // no share has it, so the state is laid out again with this parameter
  }
  std::erase_if(frozen_, [](const Frozen& frozen) { return frozen.parameter.requires_grad(); });
}

void Optimizer::zero_grad() {
  take_in_unfrozen();
  if (share_) return share_->zero_grad();
  // Groups share the arenas, so the notes are made after all fills.
  std::map<const Storage*, std::vector<Tensor>> zeroed;
  for (Group& group : groups_)
    for (const ArenaRange& range : arena_ranges(group.parameters)) {
      fill_(range.grads, 0);
      for (const int i : range.parameters)
        zeroed[range.grads.storage().get()].push_back(group.parameters[i]);
    }
  for (const auto& [storage, leaves] : zeroed) zeros_known(leaves);
}

void Optimizer::step(const Tensor& guard) {
  NoGradGuard no_grad;
  take_in_unfrozen();
  const Tensor taken = guard ? empty({}, {DType::Bool, guard.device()}) : Tensor();
  if (guard) kernels::equal(taken, guard, guard);  // false if the guard is NaN
  for (int g = 0; g < num_groups(); ++g) {
    if (program_observer) program_observer->step(this, g, groups_[g].named, groups_[g].lr);
    for (const Tensor& p : groups_[g].parameters)
      CHECK(share_ || p.grad() || !p.autograd_meta()->is_averaged_in_parts, name_,
            ": its gradients were averaged in parts (zero); use a ShardedOptimizer of the wrapper");
    std::vector<ArenaRange> ranges = current_ranges(groups_[g]);
    groups_[g].guarded_lr = groups_[g].lr_tensor;
    if (guard) {  // the kernels do nothing if the learning rate is NaN
      groups_[g].guarded_lr = empty_like(guard);
      kernels::add(groups_[g].guarded_lr, groups_[g].lr_tensor, guard);
    }
    for (size_t r = 0; r < ranges.size(); ++r) {
      begin_write(name_, ranges[r].values);
      if (groups_[g].maximize) {
        const Tensor grads = std::exchange(ranges[r].grads, empty_like(ranges[r].grads));
        kernels::affine(ranges[r].grads, grads, -1, 0);
      }
      update_range(g, ranges[r], groups_[g].state[r]);
    }
  }
  if (share_) share_->gather();
  if (!guard) return kernels::affine(step_, step_, 1, 1);
  const Tensor count = empty_like(step_);
  kernels::copy(count, taken);
  kernels::add(step_, step_, count);
}

// A parameter may have been frozen since. Each run of neighbours that still require a gradient is
// updated.
void Optimizer::update_range(int group, const ArenaRange& range, const StateRange& state) {
  const auto parameter = [&](size_t i) -> const Tensor& {
    return groups_[group].parameters[range.parameters[i]];
  };
  const size_t count = range.parameters.size();
  for (size_t first = 0, end; first < count; first = end + 1) {
    for (end = first; end < count && parameter(end).requires_grad();) ++end;
    if (end == first) continue;
    if (end - first == count) return update(group, range, state.arrays);
    const int64_t begin = std::max<int64_t>(0, range.offsets[first]);
    const int64_t numel =
        std::min(state.numel, range.offsets[end - 1] + parameter(end - 1).numel()) - begin;
    const auto part = [&](const Tensor& flat) {
      return flat.as_strided({numel}, {1}, flat.storage_offset() + begin);
    };
    ArenaRange run{{}, {}, part(range.values), part(range.grads)};
    for (size_t i = first; i < end; ++i) {
      run.parameters.push_back(range.parameters[i]);
      run.offsets.push_back(range.offsets[i] - begin);
    }
    std::vector<Tensor> parts;
    for (const Tensor& array : state.arrays) parts.push_back(part(array));
    update(group, run, parts);
  }
}

int Optimizer::checked(int group) const {
  CHECK_AS(IndexError, group >= 0 && group < num_groups(), name_, ": there is no parameter group ",
           group, ", expected 0 to ", num_groups() - 1);
  return group;
}

void Optimizer::set_lr(Real lr) {
  for (int group = 0; group < num_groups(); ++group) set_lr(group, lr);
}

void Optimizer::set_lr(Int group, Real lr) {
  check_lr(name_, lr);
  fill_(groups_[checked(group)].lr_tensor, lr);
  groups_[group].lr = lr;
}

// Returns the present device of the parameters. A group may have no parameters.
Device Optimizer::device() const {
  const auto has_some = [](const Group& group) { return !group.parameters.empty(); };
  return std::ranges::find_if(groups_, has_some)->parameters[0].device();
}

std::vector<ArenaRange> Optimizer::current_ranges(Group& group) {
  std::vector<ArenaRange> ranges =
      share_ ? share_->parts(group.parameters) : arena_ranges(group.parameters);
  const int64_t layout = share_ ? share_->layout() : 0;
  const auto laid_like = [](const StateRange& state, const ArenaRange& range) {
    const auto fits = [&range](const Tensor& array) {
      return array.dtype() == range.values.dtype() && array.device() == range.values.device();
    };
    return state.parameters == range.parameters && state.offsets == range.offsets &&
           state.numel == range.values.numel() && std::ranges::all_of(state.arrays, fits);
  };
  // All processes lay their state anew, or none does, because they exchange it.
  if (group.layout != layout || (!share_ && !std::ranges::equal(group.state, ranges, laid_like)))
    lay_state(group, ranges);
  group.layout = layout;
  const Device here = device();
  group.lr_tensor = on_device(group.lr_tensor, here);
  step_ = on_device(step_, here);
  for (const ArenaRange& range : ranges)
    CHECK_AS(DeviceError, range.values.device() == step_.device(), name_, ": parameter '",
             group.named[range.parameters[0]].first, "' is now on ", range.values.device(),
             ", others on ", step_.device(), ", expected one device");
  return ranges;
}

// The parameters may have moved since the last step (by DistributedDataParallel or Module::to).
// Their state is copied into arrays of the new layout.
void Optimizer::lay_state(Group& group, const std::vector<ArenaRange>& ranges) {
  const nn::NamedTensors old = group.layout < 0 ? nn::NamedTensors() : state_of(group);
  group.state.clear();
  for (const ArenaRange& range : ranges) {
    StateRange state{range.parameters, range.offsets, range.values.numel(), {}};
    for (size_t i = 0; i < group.state_names.size(); ++i)
      state.arrays.push_back(zeros_like(range.values));
    group.state.push_back(std::move(state));
  }
  if (!old.empty()) keep(group, old);
}

nn::NamedTensors Optimizer::state_of(const Group& group) const {
  nn::NamedTensors named;
  for (size_t s = 0; s < group.state_names.size(); ++s) {
    std::vector<Tensor> states(group.parameters.size());
    if (share_) states = share_->whole(group.parameters, group.state, s);
    for (size_t r = 0; r < group.state.size() && !share_; ++r)
      for (size_t k = 0; k < group.state[r].parameters.size(); ++k) {
        const int i = group.state[r].parameters[k];
        const Shape& shape = group.parameters[i].shape();
        states[i] = group.state[r].arrays[s].as_strided(shape, contiguous_strides(shape),
                                                        group.state[r].offsets[k]);
      }
    for (size_t i = 0; i < states.size(); ++i)
      if (states[i])  // else it was frozen when the arrays were made
        named.emplace_back(group.state_names[s] + "." + group.named[i].first, states[i]);
  }
  return named;
}

void Optimizer::keep(const Group& group, const nn::NamedTensors& state) const {
  const std::map<std::string, Tensor> found(state.begin(), state.end());
  const nn::NamedTensors all = state_of(group);
  for (const auto& [name, tensor] : all)
    if (const auto kept = found.find(name); kept != found.end()) copy_(tensor, kept->second);
  if (share_) share_->keep(group.state, all);
}

nn::NamedTensors Optimizer::state_dict() {
  take_in_unfrozen();
  for (Group& group : groups_) current_ranges(group);  // which moves the state to where it belongs
  nn::NamedTensors state{{"step", step_}};
  for (int g = 0; g < num_groups(); ++g) {
    state.emplace_back(str("lr.", g), groups_[g].lr_tensor);
    for (auto& entry : state_of(groups_[g])) state.push_back(std::move(entry));
  }
  return state;
}

void Optimizer::load_state_dict(const nn::NamedTensors& state) {
  const char* const operation = "optimizer.load_state_dict";
  const nn::NamedTensors own = state_dict();
  nn::check_by_name(operation, own, state, true);
  // Refuses what set_lr() would, before anything is loaded.
  for (const auto& [name, tensor] : state) {
    const std::string bare = name.starts_with("module.") ? name.substr(7) : name;
    if (bare != "step" && !bare.starts_with("lr.")) continue;
    const auto value = tensor.item<double>();
    CHECK_AS(DataError, value >= 0, operation, ": '", name, "' is ", value,
             ", expected at least 0; nothing was loaded");
  }
  nn::copy_by_name(operation, own, state, true);
  for (int g = 0; g < num_groups(); ++g) {
    if (share_) keep(groups_[g], own);
    groups_[g].lr = groups_[g].lr_tensor.item<double>();
  }
}

}  // namespace ringgrad::optim
