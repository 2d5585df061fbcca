// KernelTable: the phases of a training step, its kernels and the algorithms of its convolutions,
// the longest first. Each has the least time that its operations, and that its bytes, need on this
// machine. The difference is what a better kernel could gain.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "ringgrad/core/kernels/kernel_profile.h"

namespace ringgrad::program {

class KernelTable {
 public:
  KernelTable();  // measures the CPU's limits

  struct Phase {
    const char* name;
    double ms;
    std::span<const KernelCall> calls;
  };
  void add_step(const std::vector<Phase>& phases);
  void print() const;  // REQUIRES: a step; as do the others
  nlohmann::json to_json() const;

 private:
  struct Row {  // one step; the calls vary between steps only if the network does
    int64_t calls = 0;
    double operations = 0;
    double bytes = 0;
    // at the most that the machine can do
    double operations_ms = 0;
    double bytes_ms = 0;
    double bound_ms = 0;          // the sum over its calls of the longer of the two
    std::vector<double> ms = {};  // for each step
  };
  struct Line {
    std::string name;
    Row row;
    double ms;  // the median
  };
  using Rows = std::map<std::string, Row>;
  void add(Row& row, const KernelCall& call) const;
  static void add_step(Rows& rows, Rows step);
  static std::vector<Line> lines(const Rows& rows);
  void print(const Line& line) const;
  static nlohmann::json to_json(const char* key, const Rows& rows);
  double step_ms() const;
  double outside_ms() const;  // the time that is not spent in kernels

  std::map<DType, double> peak_;  // operations per second, by dtype
  double bandwidth_;              // bytes per second
  Rows kernels_;
  Rows phases_;
  Rows plans_;  // the algorithms of convolutions
  std::vector<double> steps_ms_;
  std::vector<double> outside_ms_;
};

}  // namespace ringgrad::program
