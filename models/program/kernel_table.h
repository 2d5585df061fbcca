// The kernels of a training step, the longest first, each beside the least time that its operations and its bytes need
// on this machine: what is left to gain, and where.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/kernel_profile.h"

namespace ringgrad::program {

class KernelTable {
 public:
  KernelTable();  // measures what the CPU can do at most

  void add_step(const std::vector<KernelCall>& calls, double step_ms);
  void print() const;  // REQUIRES: a step; as do the others
  nlohmann::json to_json() const;

 private:
  struct Row {  // of a step; what is called varies as little from step to step as the network
    int64_t calls = 0;
    double operations = 0, bytes = 0;
    double bound_ms = 0;          // the sum over its calls of the longer of operations / peak and bytes / bandwidth
    std::vector<double> ms = {};  // of each step
  };
  struct Line {
    std::string kernel;
    Row row;
    double ms;  // the median
  };
  std::vector<Line> lines() const;
  double step_ms() const;
  double outside_ms() const;  // of a step: what is not spent in kernels

  std::map<DType, double> peak_;  // operations per second, by dtype
  double bandwidth_;              // bytes per second
  std::map<std::string, Row> rows_;
  std::vector<double> steps_ms_, outside_ms_;
};

}  // namespace ringgrad::program
