#include "ringgrad/nn/optim/sgd.h"

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
    all.push_back(
        {parameters, options.lr,
         options.momentum > 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{}});
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

}  // namespace ringgrad::optim
