#include "ringgrad/program/train/mixed_precision.h"

#include <cstring>

#include "ringgrad/nn/optim/clip_grad.h"
#include "ringgrad/nn/optim/optimizers.h"

namespace ringgrad::program {
namespace {

constexpr const char* kMaster = "master.";
constexpr const char* kScaler = "scaler.";

}  // namespace

std::unique_ptr<optim::Optimizer> make_optimizer(const Recipe& recipe,
                                                 const nn::NamedTensors& parameters) {
  if (recipe.optimizer == "sgd")
    return std::make_unique<optim::SGD>(parameters,
                                        optim::SGDOptions{.lr = recipe.lr,
                                                          .momentum = recipe.momentum,
                                                          .weight_decay = recipe.weight_decay,
                                                          .nesterov = recipe.nesterov});
  if (recipe.optimizer == "adam")
    return std::make_unique<optim::Adam>(
        parameters, optim::AdamOptions{.lr = recipe.lr, .weight_decay = recipe.weight_decay});
  return std::make_unique<optim::AdamW>(
      parameters, optim::AdamWOptions{.lr = recipe.lr, .weight_decay = recipe.weight_decay});
}

MixedPrecision::MixedPrecision(const Recipe& recipe, nn::Module& model, Device device, bool divided)
    : model_(model), wants_masters_(recipe.amp == "O2"), divided_(divided) {
  if (recipe.amp == "O2" || recipe.amp == "O3") model.to(dtype_named(recipe.dtype));
  if (recipe.dtype == "fp16") scaler_.emplace(device);
}

nn::NamedTensors MixedPrecision::trained_parameters() {
  nn::NamedTensors trained;
  for (auto& named : model_.named_parameters())
    if (named.second.requires_grad()) trained.push_back(std::move(named));
  if (!wants_masters_ || divided_) return trained;
  masters_ = std::make_unique<optim::MasterWeights>(std::move(trained));
  return masters_->parameters();
}

std::shared_ptr<const optim::StepShare> MixedPrecision::with_copies(
    std::shared_ptr<const optim::StepShare> share) {
  if (!wants_masters_) return share;
  shared_masters_ = std::make_shared<optim::MasterShare>(std::move(share), trained_parameters());
  return shared_masters_;
}

void MixedPrecision::zero_grad(optim::Optimizer& optimizer) {
  if (masters_)
    masters_->zero_grad();
  else
    optimizer.zero_grad();
}

void MixedPrecision::step(optim::Optimizer& optimizer, double clip_norm) {
  if (masters_) masters_->take_gradients();
  if (scaler_) scaler_->unscale(optimizer);
  if (clip_norm > 0)
    optim::clip_grad_norm_(masters_ ? nn::tensors_of(masters_->parameters()) : model_.parameters(),
                           clip_norm);
  if (scaler_) {
    scaler_->step(optimizer);
    scaler_->update();
  } else {
    optimizer.step();
  }
  if (masters_) masters_->publish();
}

nn::NamedTensors MixedPrecision::state_dict() const {
  nn::NamedTensors state;
  if (masters_)
    for (const auto& [name, tensor] : masters_->parameters())
      state.emplace_back(kMaster + name, tensor.detach());
  if (shared_masters_)
    for (const auto& [name, tensor] : shared_masters_->state_dict())
      state.emplace_back(kMaster + name, tensor);
  if (scaler_)
    for (const auto& [name, tensor] : scaler_->state_dict())
      state.emplace_back(kScaler + name, tensor);
  return state;
}

nn::NamedTensors MixedPrecision::load(const nn::NamedTensors& state) {
  nn::NamedTensors own;
  nn::NamedTensors rest;
  for (const auto& entry : state)
    (entry.first.starts_with(kMaster) || entry.first.starts_with(kScaler) ? own : rest)
        .push_back(entry);
  const nn::NamedTensors all = state_dict();
  nn::copy_by_name("mixed_precision", all, own, true);
  nn::NamedTensors copies;
  for (const auto& [name, tensor] : all)
    if (name.starts_with(kMaster)) copies.emplace_back(name.substr(std::strlen(kMaster)), tensor);
  if (shared_masters_) shared_masters_->load_state_dict(copies);
  return rest;
}

}  // namespace ringgrad::program
