// Networks by name, as the program's --model takes them.
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

// cnn, lenet, quick and airbench (speed_networks.h), resnet20 … resnet110 (shortcuts by padding;
// resnet20b … by projection), resnet18 … resnet152 (with the CIFAR stem for images below 64
// pixels). Throws Error listing the names where there is no such model. Weights are drawn from the
// default generator: manual_seed() first makes them reproducible.
std::shared_ptr<nn::Module> make_model(const std::string& name, const ModelOptions& options = {});

// What such a network is usually shown, where no data set says it: MNIST's images, or CIFAR-10's.
ModelOptions usual_images(const std::string& name);

std::vector<std::string> model_names();

}  // namespace ringgrad::models
