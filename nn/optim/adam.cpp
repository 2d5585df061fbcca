#include "ringgrad/nn/optim/adam.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad::optim {
namespace {

using Groups = std::vector<ParamGroup<AdamOptions>>;

template <class Spec>
std::vector<Spec> specs(const char* name, const Groups& groups) {
  std::vector<Spec> all;
  for (const auto& [parameters, options] : groups) {
    const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
    CHECK(is_beta(options.beta1) && is_beta(options.beta2), name, ": the betas are ", options.beta1, " and ",
          options.beta2, ", expected values in [0, 1)");
    CHECK(options.eps >= 0 && options.weight_decay >= 0, name, ": eps ", options.eps, ", weight decay ",
          options.weight_decay, ", expected at least 0");
    all.push_back({parameters, options.lr, {"exp_avg", "exp_avg_sq"}});
  }
  return all;
}

Groups as_adam(std::vector<ParamGroup<AdamWOptions>> groups) {
  Groups converted;
  for (auto& [parameters, o] : groups)
    converted.push_back({std::move(parameters), {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay}});
  return converted;
}

}  // namespace

Adam::Adam(const char* name, Groups groups, bool decoupled) : Optimizer(name, specs<GroupSpec>(name, groups)) {
  for (const auto& [parameters, options] : groups)
    options_.push_back({.beta1 = options.beta1,
                        .beta2 = options.beta2,
                        .eps = options.eps,
                        .weight_decay = options.weight_decay,
                        .decoupled = decoupled});
}

Adam::Adam(ParameterList parameters, AdamOptions options) : Adam(Groups{{std::move(parameters), options}}) {}
Adam::Adam(Groups groups) : Adam("Adam", std::move(groups), false) {}
AdamW::AdamW(ParameterList parameters, AdamWOptions options)
    : AdamW(std::vector<ParamGroup<AdamWOptions>>{{std::move(parameters), options}}) {}
AdamW::AdamW(std::vector<ParamGroup<AdamWOptions>> groups) : Adam("AdamW", as_adam(std::move(groups)), true) {}

void Adam::update(int group, const nn::ArenaRange& range, const std::vector<Tensor>& state) {
  kernels::adam_step(range.values, state[0], state[1], range.grads, guarded_lr(group), step_tensor(), options_[group]);
}

}  // namespace ringgrad::optim
