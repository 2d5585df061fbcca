#include "core/cpu/conv/fusion.h"

#include <algorithm>

namespace ringgrad::conv {

PaddedChannels::PaddedChannels(Stream stream, const float* values, int64_t channels) {
  if (!values) return;
  memory_.emplace(stream, channel_blocks(channels) * kBlock);
  float* const end = std::copy_n(values, channels, memory_->data());
  std::fill(end, memory_->data() + channel_blocks(channels) * kBlock, 0.0f);
}

PartialSums::PartialSums(Stream stream, const Epilogue& epilogue, int64_t channels, int64_t units)
    : epilogue_(epilogue), channels_(channels), blocks_(channel_blocks(channels)), units_(units) {
  if (epilogue.sum) memory_.emplace(stream, units * blocks_ * 2 * kBlock);
}

void PartialSums::combine() const {
  if (!memory_) return;
  std::fill_n(epilogue_.sum, channels_, 0.0);
  std::fill_n(epilogue_.sum_of_squares, channels_, 0.0);
  for (int64_t unit = 0; unit < units_; ++unit)
    for (int64_t channel = 0; channel < channels_; ++channel) {
      const float* const sums = block(unit, channel / kBlock) + channel % kBlock;
      epilogue_.sum[channel] += sums[0];
      epilogue_.sum_of_squares[channel] += sums[kBlock];
    }
}

}  // namespace ringgrad::conv
