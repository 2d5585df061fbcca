// ModuleWatch: a wrapper trains the tensors that its module had when it was wrapped. One that is added, replaced or
// converted later would go its own way on every rank, without a word.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// What a module consists of, shared tensors once, and which of its parts are in training mode.
struct ModuleState {
  NamedTensors tensors;  // parameters and buffers
  std::vector<std::pair<std::string, bool>> training;
};

class ModuleWatch {
 public:
  explicit ModuleWatch(ModuleState wrapped);

  // What is not as it was, and how to mend it: a tensor that was added, removed, replaced or converted, a frozen
  // parameter that requires a gradient now, and that no other wrapper averages. (One that is frozen now is none of
  // these: ranks may freeze it together.)
  std::optional<std::string> look(ModuleState now);

  // A number for the modes at the last look, and a line for each.
  double modes() const;
  std::vector<std::string> mode_lines() const;

 private:
  struct Wrapped {
    std::string name;
    Tensor tensor;
    DType dtype;
    Device device;
    bool frozen;
  };
  std::vector<Wrapped> wrapped_;
  std::vector<std::pair<std::string, bool>> training_;
};

// The same for which of these parameters are frozen.
double frozen_number(const NamedTensors& parameters);
std::vector<std::string> frozen_lines(const NamedTensors& parameters);

}  // namespace ringgrad
