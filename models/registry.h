// Networks by the names that the program's --model takes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ringgrad/nn/module.h"

namespace ringgrad::models {

struct ModelOptions {
  int64_t in_channels = 3;
  int64_t num_classes = 10;
  int64_t image_size = 32;  // pixels on each side
};

// Makes cnn, lenet, quick or airbench (speed_networks.h), resnet20 … resnet110 (shortcuts by
// padding; resnet20b … by projection), or resnet18 … resnet152 (with the CIFAR stem for images
// below 64 pixels). Throws Error that lists the names if there is no such model. Weights are drawn
// from the default generator; call manual_seed() first to make them reproducible.
std::shared_ptr<nn::Module> make_model(const std::string& name, const ModelOptions& options = {});

// Returns the usual images of such a network, for when no data set gives them: MNIST's, or
// CIFAR-10's.
ModelOptions usual_images(const std::string& name);

std::vector<std::string> model_names();

}  // namespace ringgrad::models
