#include "ringgrad/nn/sequential.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad::nn {

Sequential::Sequential(std::initializer_list<std::shared_ptr<Module>> modules) {
  for (const auto& module : modules) push_back(module);
}

void Sequential::push_back(std::shared_ptr<Module> module) {
  CHECK(module != nullptr, "Sequential: module ", modules_.size(), " is null");
  register_module(std::to_string(modules_.size()), *module);
  modules_.push_back(std::move(module));
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const auto& module : modules_) y = (*module)(y);
  return y;
}

}  // namespace ringgrad::nn
