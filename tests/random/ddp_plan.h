// The plan of a random data-parallel program. All ranks derive the same plan from its seed.
#pragma once

#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/random/random_network.h"

namespace ringgrad::test {

inline constexpr double kScale = 256;  // the scale of losses, if they have one

enum class Hook { None, BFloat16, Float16 };

struct Plan {
  uint64_t seed;
  int ranks;
  const char* channel;
  NetworkOptions network;
  bool sync_batch_norm;
  Weighting weighting;
  Hook hook;
  int passes;
  int steps;
  int optimizer;
  bool two_wrappers;
  bool scaled;
  bool planned;
  double clip;
  DistributedDataParallelOptions options;

  explicit Plan(uint64_t seed);
  int64_t samples(int step, int pass, int rank) const;
  bool uses_branch(int step) const {
    return Choices(seed, 3000 + static_cast<uint64_t>(step)).chance(60);
  }
  Batch3 batch(int step, int pass, int rank, DType dtype) const {
    return random_batch(seed, (step * 8 + pass) * 8 + rank, samples(step, pass, rank), dtype,
                        weighting == Weighting::Given);
  }
  std::unique_ptr<RandomNetwork> make_network() const {
    std::lock_guard lock(generator_mutex);
    return std::make_unique<RandomNetwork>(seed, network);
  }
  // Returns the number of labelled rows in a rank's batches.
  double labels(int step, int rank) const;
  double weight(int step, int rank) const;
  Tensor loss(const Tensor& y, const Batch3& batch, int step, int rank) const;
  std::string text() const;
};

}  // namespace ringgrad::test
