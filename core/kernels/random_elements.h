// Kernels make random elements of the bits of core/random.h, the same on every device.
#pragma once

#include "ringgrad/core/random.h"

namespace ringgrad {

// Returns element i of a draw of integers in [0, n). `word` has its 64 bits. If they are rejected,
// the next lanes of the block give new bits; no other draw uses those lanes.
RINGGRAD_HOST_DEVICE inline uint64_t integer_below(uint64_t n, uint64_t word, uint64_t seed,
                                                   uint64_t offset, int64_t i) {
  uint64_t lane = 0;
  return uniform_below(n, [&] {
    const uint64_t next =
        lane == 0
            ? word
            : wide_word(philox(seed, offset + static_cast<uint64_t>(i) / 2, lane).word, i % 2);
    ++lane;
    return next;
  });
}

// Returns the threshold for dropout: an element is dropped, with probability p, if its 32 random
// bits are below it. This keeps p from being rounded to 24 bits.
inline uint64_t dropout_threshold(double p) { return static_cast<uint64_t>(p * 0x1p32 + 0.5); }

}  // namespace ringgrad
