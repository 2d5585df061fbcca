// ModuleWatch finds changes of a wrapped module. A wrapper trains the tensors that the module had
// when it was wrapped; one that is added, replaced or converted later would silently go its own way
// on every rank.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ringgrad/distributed/ddp/contribution.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// The tensors of a module, with shared ones listed once, and the training mode of each of its
// parts.
struct ModuleState {
  NamedTensors tensors;  // parameters and buffers
  std::vector<std::pair<std::string, bool>> training;
};

class ModuleWatch {
 public:
  explicit ModuleWatch(ModuleState wrapped);

  // Returns what has changed since the module was wrapped, and how to fix it. A tensor may have
  // been added, removed, replaced or converted, or a frozen parameter may now require a gradient,
  // which no other wrapper averages. A parameter that is now frozen is not reported, because ranks
  // may freeze it together.
  std::optional<std::string> look(ModuleState now);

  // Returns a number for the modes at the last look(), and a line for each mode.
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

// Returns numbers whose sum over the ranks shows whether they freeze the same of these parameters.
Alike frozen(const NamedTensors& parameters);
// Throws OutOfStepError, naming rank and parameter, unless `sum` comes from so many equal summands:
// else the ranks' parameters would become different. It is collective if it throws. `what` begins
// the message.
void check_frozen(ProcessGroup& group, const std::string& what, const Alike& sum, double summands,
                  const NamedTensors& parameters);

}  // namespace ringgrad
