// A batch of samples, as a network takes it.
#pragma once

#include <cstdint>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

struct Batch {
  // [B, C, H, W] for an image data set. A DataLoader gives float32; other sources give the
  // requested dtype.
  Tensor data = {};
  // int64 [B], or the samples' targets if the source is a Dataset.
  Tensor target = {};
  // [B]: the numbers of these samples in the data set.
  std::vector<int64_t> indices = {};
  // The number of samples at the end that only repeat others (Sampler::padding).
  int64_t padding = 0;

  int64_t size() const { return static_cast<int64_t>(indices.size()); }
};

}  // namespace ringgrad
