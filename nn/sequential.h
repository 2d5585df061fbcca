// Modules that hold others in a list, or call one after the other. A module given by value moves in
// and is owned; a std::shared_ptr shares ownership.
//
//   nn::Sequential net(nn::Linear(784, 128), nn::ReLU(), nn::Linear(128, 10));
#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

// Returns the module behind a std::shared_ptr, or moves a module given by value into new memory.
template <class M>
std::shared_ptr<Module> as_shared(M&& module) {
  if constexpr (std::is_convertible_v<M, std::shared_ptr<Module>>) {
    return std::forward<M>(module);
  } else {
    static_assert(!std::is_lvalue_reference_v<M>,
                  "modules are not copied: std::move it, or give a std::shared_ptr");
    return std::make_shared<std::remove_cvref_t<M>>(std::forward<M>(module));
  }
}

// Holds modules named "0", "1", …. It has no forward.
class ModuleList : public Module {
 public:
  ModuleList() = default;
  template <class... Modules>
  requires(!(sizeof...(Modules) == 1 &&
             (std::is_base_of_v<ModuleList, std::remove_cvref_t<Modules>> &&
              ...))) explicit ModuleList(Modules&&... modules) {
    (push_back(std::forward<Modules>(modules)), ...);
  }

  template <class M>
  void push_back(M&& module) {
    modules_.push_back(register_module(std::to_string(size()), as_shared(std::forward<M>(module))));
  }

  size_t size() const { return modules_.size(); }
  // Throws std::out_of_range. at<Linear>(0) throws std::bad_cast if the module has another type.
  Module& operator[](size_t i) const { return *modules_.at(i); }
  template <class M>
  M& at(size_t i) const {
    return dynamic_cast<M&>(*modules_.at(i));
  }
  auto begin() const { return modules_.begin(); }  // iterates over std::shared_ptr<Module>
  auto end() const { return modules_.end(); }
  bool prints_alike_together() const override { return true; }

 private:
  std::vector<std::shared_ptr<Module>> modules_;
};

// Passes each module's output to the next one. An empty one is the identity.
class Sequential : public ModuleList {
 public:
  using ModuleList::ModuleList;
  Tensor forward(const Tensor& x) override;
  bool prints_alike_together() const override { return false; }
};

}  // namespace ringgrad::nn
