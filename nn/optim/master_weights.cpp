#include "ringgrad/nn/optim/master_weights.h"

#include "ringgrad/autograd/grad_mode.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad::optim {

MasterWeights::MasterWeights(nn::NamedTensors parameters) : model_(std::move(parameters)) {
  NoGradGuard no_grad;
  for (const auto& [name, tensor] : model_) {
    CHECK(tensor.defined() && tensor.is_leaf() && tensor.requires_grad(), "MasterWeights: parameter '", name,
          "' is no leaf that requires a gradient");
    const Tensor master = empty(tensor.shape(), {DType::Float32, tensor.device()});
    copy_(master, tensor);
    master.set_requires_grad();
    masters_.emplace_back(name, master);
  }
}

void MasterWeights::zero_grad() {
  for (const auto& [name, tensor] : model_)
    if (const Tensor grad = tensor.grad()) fill_(grad, 0);
}

void MasterWeights::take_gradients() {
  NoGradGuard no_grad;
  for (size_t i = 0; i < model_.size(); ++i) {
    const Tensor grad = model_[i].second.grad(), &master = masters_[i].second;
    if (!master.grad()) master.set_grad(zeros_like(master));
    if (grad)
      copy_(master.grad(), grad);
    else
      fill_(master.grad(), 0);
  }
}

void MasterWeights::publish() {
  NoGradGuard no_grad;
  for (size_t i = 0; i < model_.size(); ++i) copy_(model_[i].second, masters_[i].second);
}

}  // namespace ringgrad::optim
