// RMSprop, Adagrad, Adadelta and AdamW: each turns its options into one kernel per range.
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad::optim {
namespace {

using Names = std::vector<std::string>;

// Returns for each group the names of its state, which depend on its options.
template <class Spec, class Options, class NamesOf>
std::vector<Spec> specs(const char* name, const std::vector<ParamGroup<Options>>& groups,
                        NamesOf names_of) {
  std::vector<Spec> all;
  for (const auto& [parameters, options] : groups) {
    CHECK(options.eps >= 0 && options.weight_decay >= 0, name, ": eps ", options.eps,
          ", weight decay ", options.weight_decay, ", expected at least 0");
    all.push_back({parameters, options.lr, names_of(options), options.maximize});
  }
  return all;
}

Names rmsprop_names(const RMSpropOptions& o) {
  CHECK(o.alpha >= 0 && o.alpha < 1 && o.momentum >= 0, "RMSprop: alpha ", o.alpha, ", momentum ",
        o.momentum, ", expected a value in [0, 1), and at least 0");
  Names names = {"square_avg"};
  if (o.centered) names.push_back("grad_avg");
  if (o.momentum > 0) names.push_back("momentum_buffer");
  return names;
}
Names adagrad_names(const AdagradOptions& o) {
  CHECK(o.lr_decay >= 0 && o.initial_accumulator_value >= 0, "Adagrad: lr_decay ", o.lr_decay,
        ", initial_accumulator_value ", o.initial_accumulator_value, ", expected at least 0");
  return {"sum"};
}
Names adadelta_names(const AdadeltaOptions& o) {
  CHECK(o.rho >= 0 && o.rho <= 1, "Adadelta: rho is ", o.rho, ", expected a value in [0, 1]");
  return {"square_avg", "acc_delta"};
}

}  // namespace

RMSprop::RMSprop(ParameterList parameters, RMSpropOptions options)
    : RMSprop(std::vector<ParamGroup<RMSpropOptions>>{{std::move(parameters), options}}) {}
RMSprop::RMSprop(std::vector<ParamGroup<RMSpropOptions>> groups)
    : Optimizer("RMSprop", specs<GroupSpec>("RMSprop", groups, rmsprop_names)) {
  for (const auto& [parameters, o] : groups)
    options_.push_back({o.alpha, o.eps, o.weight_decay, o.momentum, o.centered});
}
void RMSprop::update(int group, const ArenaRange& range, const std::vector<Tensor>& state) {
  const auto& o = options_[group];
  kernels::rmsprop_step(range.values, state[0], o.centered ? state[1] : Tensor(),
                        o.momentum > 0 ? state.back() : Tensor(), range.grads, guarded_lr(group),
                        step_tensor(), o);
}

Adagrad::Adagrad(ParameterList parameters, AdagradOptions options)
    : Adagrad(std::vector<ParamGroup<AdagradOptions>>{{std::move(parameters), options}}) {}
Adagrad::Adagrad(std::vector<ParamGroup<AdagradOptions>> groups)
    : Optimizer("Adagrad", specs<GroupSpec>("Adagrad", groups, adagrad_names)) {
  for (const auto& [parameters, o] : groups)
    options_.push_back({o.lr_decay, o.eps, o.weight_decay, o.initial_accumulator_value});
}
void Adagrad::update(int group, const ArenaRange& range, const std::vector<Tensor>& state) {
  kernels::adagrad_step(range.values, state[0], range.grads, guarded_lr(group), step_tensor(),
                        options_[group]);
}

Adadelta::Adadelta(ParameterList parameters, AdadeltaOptions options)
    : Adadelta(std::vector<ParamGroup<AdadeltaOptions>>{{std::move(parameters), options}}) {}
Adadelta::Adadelta(std::vector<ParamGroup<AdadeltaOptions>> groups)
    : Optimizer("Adadelta", specs<GroupSpec>("Adadelta", groups, adadelta_names)) {
  for (const auto& [parameters, o] : groups) options_.push_back({o.rho, o.eps, o.weight_decay});
}
void Adadelta::update(int group, const ArenaRange& range, const std::vector<Tensor>& state) {
  kernels::adadelta_step(range.values, state[0], state[1], range.grads, guarded_lr(group),
                         step_tensor(), options_[group]);
}

static std::vector<ParamGroup<AdamOptions>> as_adam(std::vector<ParamGroup<AdamWOptions>> groups) {
  std::vector<ParamGroup<AdamOptions>> converted;
  for (auto& [parameters, o] : groups)
    converted.push_back({std::move(parameters),
                         {o.lr, o.betas, o.eps, o.weight_decay, o.amsgrad, o.maximize, true}});
  return converted;
}

AdamW::AdamW(ParameterList parameters, AdamWOptions options)
    : AdamW(std::vector<ParamGroup<AdamWOptions>>{{std::move(parameters), options}}) {}
AdamW::AdamW(std::vector<ParamGroup<AdamWOptions>> groups)
    : Adam("AdamW", as_adam(std::move(groups))) {}

}  // namespace ringgrad::optim
