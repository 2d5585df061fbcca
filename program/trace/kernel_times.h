// Computes, from recorded steps, the time of each kernel in each layer. `compare` and `report` use
// it.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "ringgrad/program/run/summary.h"
#include "ringgrad/program/trace/step_record.h"

namespace ringgrad::program {

class KernelTimes {
 public:
  void add(const StepRecord& step);  // one step
  // In the order in which a step calls them.
  std::vector<KernelTime> medians() const;

 private:
  using Key = std::array<std::string, 3>;  // phase, layer, kernel
  std::vector<Key> order_;
  std::map<Key, std::vector<double>> seconds_;  // for each step that has the kernel
};

}  // namespace ringgrad::program
