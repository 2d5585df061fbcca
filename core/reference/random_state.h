// The state of a generator as kernels read it.
#pragma once

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
  // The block with the words of element i, where each element takes `words` of its four.
  PhiloxBlock block(int64_t i, int64_t words) const {
    return philox(seed, offset + static_cast<uint64_t>(i / (4 / words)));
  }
};

}  // namespace ringgrad::reference
