// Division by a number that all threads share: a multiplication instead of the twenty instructions of a division
// (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ringgrad::cuda {

// n / d = (⌊n · multiplier / 2^32⌋ + n) >> shift for n < 2^31, where 2^shift is the least power of two that is not
// below d, and multiplier = ⌊2^32 (2^shift - d) / d⌋ + 1.
struct Divider {
  unsigned divisor, multiplier, shift = 0;

  // REQUIRES: by < 2^31. A 0 stands for 1: what is empty asks nothing.
  explicit Divider(int64_t by) : divisor(by > 0 ? static_cast<unsigned>(by) : 1) {
    while (uint64_t{1} << shift < divisor) ++shift;
    multiplier = static_cast<unsigned>(((((uint64_t{1} << shift) - divisor) << 32) / divisor) + 1);
  }

  struct Result {
    unsigned quotient, remainder;
  };
  // REQUIRES: n < 2^31.
  __device__ __forceinline__ Result operator()(unsigned n) const {
    const unsigned quotient = (static_cast<unsigned>((uint64_t{n} * multiplier) >> 32) + n) >> shift;
    return {quotient, n - quotient * divisor};
  }
};

}  // namespace ringgrad::cuda
