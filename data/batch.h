// What a data loader hands to training: one batch of samples.
#pragma once

#include <cstdint>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

struct Batch {
  Tensor data = {};                   // [B, C, H, W] of an image data set: float32 from a DataLoader, else as asked for
  Tensor target = {};                 // int64 [B]
  std::vector<int64_t> indices = {};  // [B]: which samples of the data set these are
  int64_t padding = 0;                // how many at the end only repeat others (Sampler::padding)

  int64_t size() const { return static_cast<int64_t>(indices.size()); }
};

}  // namespace ringgrad
