// A sequence of random numbers named by what it is for: (seed, purpose, stream, substream), for example the crop of
// image 17 in epoch 3. Whoever asks gets the same numbers, on any machine, rank, worker thread or device, in any order.
#pragma once

#include <cstdint>

#include "ringgrad/core/random.h"

namespace ringgrad {

// Sequences for different purposes are unrelated, though they share a seed.
enum class Purpose : uint64_t {
  Permutation = 0x7065726d75746174u,
  Augmentation = 0x6175676d656e7461u,
  Digits = 0x6469676974730000u,
  Shapes = 0x7368617065730000u,
};

class RandomSequence {
 public:
  // Each substream has 2^25 numbers of its own. REQUIRES: substream < 2^40.
  RINGGRAD_HOST_DEVICE RandomSequence(uint64_t seed, Purpose purpose, uint64_t stream, uint64_t substream = 0)
      : key_(seed ^ static_cast<uint64_t>(purpose)), counter_(substream << 24), lane_(stream) {}

  RINGGRAD_HOST_DEVICE uint64_t next() {
    if (have_spare_) {
      have_spare_ = false;
      return spare_;
    }
    const PhiloxBlock block = philox(key_, counter_++, lane_);
    spare_ = block.word[2] | static_cast<uint64_t>(block.word[3]) << 32;
    have_spare_ = true;
    return block.word[0] | static_cast<uint64_t>(block.word[1]) << 32;
  }

  // Uniform in [0, n), exactly: Lemire 2019, "Fast random integer generation in an interval". REQUIRES: n >= 1.
  RINGGRAD_HOST_DEVICE uint64_t below(uint64_t n) {
    __extension__ using Wide = unsigned __int128;
    Wide product = static_cast<Wide>(next()) * n;
    if (static_cast<uint64_t>(product) < n) {
      const uint64_t reject = (0 - n) % n;
      while (static_cast<uint64_t>(product) < reject) product = static_cast<Wide>(next()) * n;
    }
    return static_cast<uint64_t>(product >> 64);
  }

  // Uniform in [low, high], both included.
  RINGGRAD_HOST_DEVICE int32_t between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(below(static_cast<uint64_t>(int64_t{high} - low) + 1));
  }

 private:
  uint64_t key_, counter_, lane_;
  uint64_t spare_ = 0;
  bool have_spare_ = false;
};

}  // namespace ringgrad
