#pragma once

#include <memory>
#include <vector>

#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

// Modules one after the other, named "0", "1", …; it owns them.
//
//   nn::Sequential net{std::make_shared<nn::Linear>(784, 128), std::make_shared<nn::ReLU>(),
//                      std::make_shared<nn::Linear>(128, 10)};
class Sequential : public Module {
 public:
  Sequential() = default;
  Sequential(std::initializer_list<std::shared_ptr<Module>> modules);
  void push_back(std::shared_ptr<Module> module);
  Tensor forward(const Tensor& x) override;

  size_t size() const { return modules_.size(); }
  Module& operator[](size_t i) const { return *modules_.at(i); }

 private:
  std::vector<std::shared_ptr<Module>> modules_;
};

}  // namespace ringgrad::nn
