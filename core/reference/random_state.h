// A generator's state, as kernels read it.
#pragma once

#include "ringgrad/core/random.h"
#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {

struct RandomState {
  uint64_t seed;
  uint64_t offset;
  explicit RandomState(const Tensor& state) {
    const Elements<int64_t> at(state);
    seed = static_cast<uint64_t>(int64_t{at(0)});
    offset = static_cast<uint64_t>(int64_t{at(1)});
  }
  // Returns the block that has the words of element i, if each element takes `words` of its four
  // words.
  PhiloxBlock block(int64_t i, int64_t words) const {
    return philox(seed, offset + static_cast<uint64_t>(i / (4 / words)));
  }
};

}  // namespace ringgrad::reference
