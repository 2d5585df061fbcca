// Runs a network with hashed weights in ringgrad: logits, losses, every gradient, and the state
// after some steps of SGD. It is the twin of tests/golden/training.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/golden/hashed_weights.h"

namespace ringgrad::test {

inline constexpr int64_t kParityBatch = 4;
inline constexpr int kParitySteps = 5;
inline constexpr optim::SGDOptions kParitySGD = {.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4};

struct ParityNetwork {
  std::shared_ptr<nn::Module> model;
  Shape image;  // [C, H, W]
  int64_t classes;
};

// By the names of tests/golden/networks.py: those of the registry, and NAME_imagenet for the
// ImageNet stem (whose input may have any size: 64 pixels are quick).
inline ParityNetwork make_parity_network(const std::string& name) {
  if (name == "cnn" || name == "lenet")
    return {models::make_model(name, {.in_channels = 1, .image_size = 28}), {1, 28, 28}, 10};
  if (name.ends_with("_imagenet")) {
    const std::string base = name.substr(0, name.find('_'));
    return {models::make_model(base, {.num_classes = 1000, .image_size = 224}), {3, 64, 64}, 1000};
  }
  return {models::make_model(name), {3, 32, 32}, 10};
}

// Overwrites every parameter and buffer with its hashed value.
inline void load_hashed(nn::Module& model, bool steady) {
  for (const auto& [name, value] : model.state_dict()) {
    std::vector<double> values(value.numel());
    for (int64_t i = 0; i < value.numel(); ++i)
      values[i] = hashed_state(name, value.shape(), steady, i);
    copy_(value, tensor(values, value.shape()));
  }
}

inline Tensor hashed_images(const Shape& image, DType dtype) {
  Shape shape = image;
  shape.insert(0, kParityBatch);
  std::vector<double> values(shape.numel());
  for (int64_t i = 0; i < shape.numel(); ++i) values[i] = hashed_uniform("input", i);
  const Tensor x = empty(shape, {.dtype = dtype});
  copy_(x, tensor(values, shape));
  return x;
}

inline Tensor hashed_labels(int64_t classes) {
  std::vector<int64_t> labels(kParityBatch);
  for (int64_t i = 0; i < kParityBatch; ++i) labels[i] = hashed_label(i, classes);
  return tensor(labels);
}

// "logits" and "losses" (float64, of each step), "grad.NAME" of the first step, "state.NAME" after
// the last. float64 runs on mixed weights, float32 on steady ones (Note [Mixed and steady
// weights]); batch norm is in training mode.
inline nn::NamedTensors parity_training(const std::string& network, DType dtype) {
  const auto [model, image, classes] = make_parity_network(network);
  model->to(dtype);
  load_hashed(*model, dtype == DType::Float32);
  model->train();
  optim::SGD optimizer(model->named_parameters(), kParitySGD);
  const Tensor images = hashed_images(image, dtype);
  const Tensor labels = hashed_labels(classes);

  nn::NamedTensors out;
  std::vector<double> losses;
  for (int step = 0; step < kParitySteps; ++step) {
    optimizer.zero_grad();
    const Tensor logits = model->forward(images);
    const Tensor loss = cross_entropy(logits, labels);
    loss.backward();
    if (step == 0) {
      out.emplace_back("logits", clone(logits.detach()));
      for (const auto& [name, parameter] : model->named_parameters())
        out.emplace_back("grad." + name, clone(parameter.grad()));
    }
    losses.push_back(loss.item<double>());
    optimizer.step();
  }
  out.emplace_back("losses", tensor(losses));
  for (const auto& [name, value] : model->state_dict())
    if (value.dtype() == dtype) out.emplace_back("state." + name, clone(value));
  return out;
}

}  // namespace ringgrad::test
