// The laboratory for kernels with Hopper's own instructions: variants of a kernel at one shape
// each, checked and timed in one run. A file bench/hopper_lab_*.cu adds its variants.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ringgrad/core/tensor.h"

namespace ringgrad::lab {

// A variant with its operands on the device.
struct Prepared {
  // Operands of the same shape in several places. Runs go through them in turn, so that none finds
  // its operands in the second-level cache.
  int sets = 1;
  // Queues one launch, on the operands of that set.
  std::function<void(Stream, int set)> run;
  // Returns the largest error of set 0's result after a run, relative to the largest number of the
  // reference. Empty if the result means nothing, because something was left out.
  std::function<double()> error;
  // Returns further numbers of the last run, for example how long each role waited. May be empty.
  std::function<nlohmann::json()> more;
};

struct Variant {
  std::string kernel;       // "gemm"
  std::string name;         // "128x256, 4 stages, cluster 2"
  std::string shape;        // "4096x4096x4096"
  double operations = 0;    // 0: it is only checked, not timed
  double bytes = 0;         // the size of operands and results
  double most_error = 0;    // above it, a result is wrong
  double predicted_us = 0;  // 0: nobody has predicted it
  // `small`: at a shape that an emulator computes in a moment, and with one set.
  std::function<Prepared(bool small)> prepare;
};

// Adds variants, before main: static const bool registered = register_variants({…}). Those of a
// file stay in their order.
bool register_variants(std::vector<Variant> variants);

// Returns how many sets of operands of `bytes` are twice as large as an H200's second-level cache.
int sets_for(double bytes);

// Returns the largest difference relative to the largest number of `reference`. Infinite if a
// number is not finite.
double relative_error(const Tensor& result, const Tensor& reference);

// Normally distributed numbers with mean 0 and deviation 1, on the device.
Tensor noise(const Shape& shape, DType dtype);

}  // namespace ringgrad::lab
