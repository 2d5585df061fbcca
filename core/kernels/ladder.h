// A ladder is a series of implementations of one kernel, from the obvious to the fast. Each can be
// run alone and compared with the one before it. `ringgrad bench kernel`, bench/cuda_ladders.cpp
// and the tests run them.
//
// The file with its kernels registers a ladder, with one line for each step. So a program without
// the kernels of a device type has none of its ladders.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

struct LadderStep {
  const char* name;
  const char* idea;  // one line for the user: what it does, or improves on the step before
};

// The task of a ladder's steps at one size: operands of noise on a device, and the least work that
// the task takes.
struct LadderProblem {
  // A description for the user.
  std::string shapes;
  // Multiplications and additions by the definition, whatever a step does.
  double operations;
  // The size of the operands, each read or written once.
  double bytes;
  // The inputs, in the order of the formula Ladder::computes.
  std::vector<Tensor> inputs;
  // The results, in the same order. Each step overwrites all of them.
  std::vector<Tensor> results;
  std::function<bool(int step)> supports;
  // REQUIRES: supports(step), and a stream of the operands' device.
  std::function<void(int step, Stream)> run;
};

struct Ladder {
  const char* kernel;              // its name: "matmul"
  const char* computes;            // a formula with shapes
  std::vector<LadderStep> steps;   // the slowest first; shown to users from 1
  std::vector<const char*> sizes;  // names of the numbers that define a problem's size
  // `large` is worth measuring on a GPU. `small` is enough for counting by emulation.
  std::vector<int64_t> large;
  std::vector<int64_t> small;
  // Throws ShapeError if the steps need other sizes. REQUIRES: as many numbers as `sizes`, all
  // positive; float32, float16 or bfloat16.
  LadderProblem (*problem)(Device device, DType dtype, const std::vector<int64_t>& size);
};

// Returns the program's ladders, sorted by the names of their kernels.
const std::vector<Ladder>& ladders();
const Ladder* find_ladder(std::string_view kernel);  // nullptr if there is none

// Returns the seconds that a call takes by the device's own clock: the mean of up to 20 calls
// within about 0.3 s, after two that warm up.
double seconds_per_call(Device device, const std::function<void(Stream)>& call);

// Registers a ladder. The file with its kernels calls it before main: static const bool registered
// = register_ladder({…}).
bool register_ladder(Ladder ladder);

}  // namespace ringgrad
