// All modules that hold others: those of sequential.h, and ModuleDict, which holds them by name.
// Functional makes a function a module among them.
#pragma once

#include <functional>

#include "ringgrad/nn/sequential.h"

namespace ringgrad::nn {

// Holds modules under names of the caller's choice.
class ModuleDict : public Module {
 public:
  template <class M>
  void insert(const std::string& name, M&& module) {
    modules_.emplace_back(name, register_module(name, as_shared(std::forward<M>(module))));
  }
  size_t size() const { return modules_.size(); }
  bool contains(const std::string& name) const;
  // Throws Error that lists the existing names.
  Module& operator[](const std::string& name) const;
  // Iterates over (name, std::shared_ptr<Module>), in order of insertion.
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }

 private:
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> modules_;
};

// A function in a Sequential, with its arguments after the tensor: nn::Functional(log_softmax, 1).
class Functional : public Module {
 public:
  template <class F, class... Args>
  explicit Functional(F f, Args... args)
      : f_([=](const Tensor& x) -> Tensor { return f(x, args...); }) {}
  Tensor forward(const Tensor& x) override { return f_(x); }

 private:
  std::function<Tensor(const Tensor&)> f_;
};

}  // namespace ringgrad::nn
