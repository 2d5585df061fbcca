// A convolution's bias, padded with zeros to whole blocks of channels.
#pragma once

#include <algorithm>
#include <optional>

#include "ringgrad/core/cpu/conv/vector.h"
#include "ringgrad/core/cpu/workspace.h"

namespace ringgrad::conv {

class Bias {
 public:
  // values: [channels], or null: zeros.
  Bias(Stream stream, const float* values, int64_t channels) {
    if (!values) return;
    padded_.emplace(stream, channel_blocks(channels) * kBlock);
    float* const end = std::copy_n(values, channels, padded_->data());
    std::fill(end, padded_->data() + channel_blocks(channels) * kBlock, 0.0f);
  }
  // The values of the channels from `channel` on.
  Vector load(int64_t channel) const { return padded_ ? conv::load(padded_->data() + channel) : Vector{}; }

 private:
  std::optional<cpu::Workspace<float>> padded_;
};

}  // namespace ringgrad::conv
