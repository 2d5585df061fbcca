// The words of consecutive Philox blocks, whose rounds run side by side. Private to core/cpu.
#pragma once

#include "ringgrad/core/random.h"

namespace ringgrad::cpu {

// words[4 b + w] = word w of the block at counter first + b. g++ vectorises the loop over more than
// 16 blocks.
inline void random_words(uint64_t seed, uint64_t first, int64_t blocks, uint32_t* words) {
  for (int64_t b = 0; b < blocks; ++b) {
    const PhiloxBlock block = philox(seed, first + static_cast<uint64_t>(b));
    for (int w = 0; w < 4; ++w) words[4 * b + w] = block.word[w];
  }
}

}  // namespace ringgrad::cpu
