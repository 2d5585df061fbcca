// What a convolution does to its input on the way in and to its output on the way out, so that a conv - batch norm -
// ReLU block reads and writes each activation once.
#pragma once

#include <optional>

#include "core/cpu/conv/geometry.h"
#include "core/cpu/conv/thread_workspaces.h"

namespace ringgrad::conv {

// The convolution sees max(0, scale[c] x + shift[c]) in place of x: batch norm's normalisation and ReLU. Both [C], or
// both null: x itself. The zero padding of the image is not mapped.
struct Prologue {
  const float* scale = nullptr;
  const float* shift = nullptr;
};

// y gets bias[k] added. sum and sum_of_squares receive, for each channel of y, the sums over N, H and W that batch
// norm's statistics need. All [K]; each may be null, but the sums come in pairs. Sums are float32 over the outputs of a
// unit of work and float64 over the units, in a fixed order.
struct Epilogue {
  const float* bias = nullptr;
  double* sum = nullptr;
  double* sum_of_squares = nullptr;
};

// Numbers per channel, with zeros for the padding of the last block.
class PaddedChannels {
 public:
  PaddedChannels(Stream stream, const float* values, int64_t channels);
  // Those of a block; null where there are no values.
  const float* block(int64_t index) const { return memory_ ? memory_->data() + index * kBlock : nullptr; }

 private:
  std::optional<Workspace<float>> memory_;
};

// The sums of an epilogue, one partial result for each unit of work.
class PartialSums {
 public:
  PartialSums(Stream stream, const Epilogue& epilogue, int64_t channels, int64_t units);
  // Where a unit puts 16 sums and, behind them, 16 sums of squares; null where nobody wants them.
  float* block(int64_t unit, int64_t index) const {
    return memory_ ? memory_->data() + (unit * blocks_ + index) * 2 * kBlock : nullptr;
  }
  void combine() const;

 private:
  Epilogue epilogue_;
  int64_t channels_, blocks_, units_;
  std::optional<Workspace<float>> memory_;
};

}  // namespace ringgrad::conv
