// A ladder: the ways of computing one kernel, from the obvious to the fast, so that each can be run
// alone and compared with the one before it. `ringgrad bench kernel`, bench/cuda_ladders.cpp and
// the tests climb them.
//
// A ladder registers itself from the file that has its kernels, with a line for each step, as
// kernels do; so a program without a device type's kernels has none of its ladders.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

struct LadderStep {
  const char* name;
  const char* idea;  // what it does, or does better than the step before: a line for people
};

// What the steps of a ladder compute, at one size: operands of noise on a device, and the least
// that computing takes.
struct LadderProblem {
  // For people.
  std::string shapes;
  // Multiplications and additions by the definition, whatever a step does.
  double operations;
  // The bytes of the operands, each read or written once.
  double bytes;
  // In the order of the formula that Ladder::computes is.
  std::vector<Tensor> inputs;
  // Likewise; each step overwrites all of them.
  std::vector<Tensor> results;
  std::function<bool(int step)> supports;
  // REQUIRES: supports(step), and a stream of the operands' device.
  std::function<void(int step, Stream)> run;
};

struct Ladder {
  const char* kernel;              // its name: "matmul"
  const char* computes;            // a formula with shapes
  std::vector<LadderStep> steps;   // the slowest first; people count them from 1
  std::vector<const char*> sizes;  // the names of the numbers that say how large a problem is
  // worth measuring on a GPU; enough to count by emulation
  std::vector<int64_t> large;
  std::vector<int64_t> small;
  // Throws ShapeError where the steps want other sizes. REQUIRES: as many numbers as `sizes`, all
  // positive; float32, float16 or bfloat16.
  LadderProblem (*problem)(Device device, DType dtype, const std::vector<int64_t>& size);
};

// Those of the program, in the order of their kernels' names.
const std::vector<Ladder>& ladders();
const Ladder* find_ladder(std::string_view kernel);  // nullptr where there is none

// Seconds that a call takes on a device, by its own clock: the mean over up to 20 calls within
// about 0.3 s, behind two that warm up.
double seconds_per_call(Device device, const std::function<void(Stream)>& call);

// Called before main, by the file that has the kernels: static const bool registered =
// register_ladder({…}).
bool register_ladder(Ladder ladder);

}  // namespace ringgrad
