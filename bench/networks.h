// Networks that users bring, by their names.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "ringgrad/nn/module.h"

struct Example {
  std::function<std::shared_ptr<ringgrad::nn::Module>()> make;  // of ten classes
  ringgrad::Shape input = {64, 3, 32, 32};
};
extern const std::map<std::string, Example> kNetworks;
