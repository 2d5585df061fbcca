// StepRecord: what one rank did in one or more training steps. Times are nanoseconds of its own
// steady clock, until they are moved to rank 0's.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace ringgrad::program {

inline int64_t steady_nanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

struct Slice {
  std::string name;
  int64_t begin = 0;
  int64_t end = 0;
};

// An all-reduce. They run one after the other, so `begin` is `launched`, or the end of the one
// before.
struct BucketSlice {
  int64_t launched = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t bytes = 0;
  std::vector<std::string> parameters;  // that reach into it
};

struct StepRecord {
  // Those of one list do not overlap, but for kernels, which lie in the kernels that call them.
  // data, zero_grad, forward, backward, optimizer, rest.
  std::vector<Slice> phases;
  // The times until a layer's output, or its last gradient, was there.
  std::vector<Slice> layers;
  // The kernels that the thread of the step called.
  std::vector<Slice> kernels;
  // By parameter: from its complete gradient to the end of its hooks.
  std::vector<Slice> gradients;
  // The time in backward after the last gradient, which overlap did not hide.
  std::vector<Slice> waits;
  // The loading of batches, by the loader's threads.
  std::vector<std::vector<Slice>> loading;
  std::vector<BucketSlice> buckets;
  // The offset of the rank's clock against rank 0's.
  int64_t clock_offset = 0;
  // The bound on how wrong that may be.
  int64_t clock_bound = 0;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Slice, name, begin, end)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BucketSlice, launched, begin, end, bytes, parameters)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepRecord, phases, layers, kernels, gradients, waits, loading,
                                   buckets, clock_offset, clock_bound)

}  // namespace ringgrad::program
