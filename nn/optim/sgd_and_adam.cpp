#include "ringgrad/nn/optim/sgd_and_adam.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad::optim {
namespace {

using SGDGroups = std::vector<ParamGroup<SGDOptions>>;

template <class Spec>
std::vector<Spec> specs(const SGDGroups& groups) {
  std::vector<Spec> all;
  for (const auto& [parameters, options] : groups) {
    CHECK(options.momentum >= 0 && options.weight_decay >= 0, "SGD: momentum ", options.momentum,
          ", weight decay ", options.weight_decay, ", expected at least 0");
    CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
          "SGD: nesterov with momentum ", options.momentum, " and dampening ", options.dampening,
          ", expected a momentum and no dampening");
    all.push_back({parameters, options.lr, {}, options.maximize});
    if (options.momentum > 0) all.back().state_names = {"momentum"};
  }
  return all;
}

}  // namespace

SGD::SGD(ParameterList parameters, SGDOptions options)
    : SGD(SGDGroups{{std::move(parameters), options}}) {}

SGD::SGD(std::vector<ParamGroup<SGDOptions>> groups) : Optimizer("SGD", specs<GroupSpec>(groups)) {
  for (const auto& [parameters, options] : groups)
    options_.push_back({.momentum = options.momentum,
                        .dampening = options.dampening,
                        .weight_decay = options.weight_decay,
                        .nesterov = options.nesterov});
}

void SGD::update(int group, const ArenaRange& range, const std::vector<Tensor>& state) {
  kernels::sgd_step(range.values, state.empty() ? Tensor() : state[0], range.grads,
                    guarded_lr(group), step_tensor(), options_[group]);
}

namespace {

using AdamGroups = std::vector<ParamGroup<AdamOptions>>;

template <class Spec>
std::vector<Spec> specs(const char* name, const AdamGroups& groups) {
  std::vector<Spec> all;
  for (const auto& [parameters, options] : groups) {
    const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
    CHECK(is_beta(options.betas.first) && is_beta(options.betas.second), name, ": the betas are ",
          options.betas.first, " and ", options.betas.second, ", expected values in [0, 1)");
    CHECK(options.eps >= 0 && options.weight_decay >= 0, name, ": eps ", options.eps,
          ", weight decay ", options.weight_decay, ", expected at least 0");
    all.push_back({parameters, options.lr, {"exp_avg", "exp_avg_sq"}, options.maximize});
    if (options.amsgrad) all.back().state_names.push_back("max_exp_avg_sq");
  }
  return all;
}

}  // namespace

Adam::Adam(const char* name, AdamGroups groups) : Optimizer(name, specs<GroupSpec>(name, groups)) {
  for (const auto& [parameters, options] : groups)
    options_.push_back({.beta1 = options.betas.first,
                        .beta2 = options.betas.second,
                        .eps = options.eps,
                        .weight_decay = options.weight_decay,
                        .decoupled = options.decoupled_weight_decay});
}

Adam::Adam(ParameterList parameters, AdamOptions options)
    : Adam(AdamGroups{{std::move(parameters), options}}) {}
Adam::Adam(std::vector<ParamGroup<AdamOptions>> groups) : Adam("Adam", std::move(groups)) {}

void Adam::update(int group, const ArenaRange& range, const std::vector<Tensor>& state) {
  kernels::adam_step(range.values, state[0], state[1], state.size() > 2 ? state[2] : Tensor(),
                     range.grads, guarded_lr(group), step_tensor(), options_[group]);
}

}  // namespace ringgrad::optim
