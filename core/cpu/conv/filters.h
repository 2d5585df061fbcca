// Filters and biases in the layout that the kernels need. Filters [K, C, R, S] become blocks of 16
// x 16 channels: 16 columns (the channels that a kernel produces) side by side in a vector, and one
// row for each channel that it sums over.
#pragma once

#include <algorithm>
#include <optional>

#include "ringgrad/core/cpu/conv/vector.h"
#include "ringgrad/core/cpu/workspace.h"

namespace ringgrad::conv {

using cpu::ThreadWorkspaces;
using cpu::Workspace;

// The convolution in which a filter takes part. The data gradient is a convolution of dy with the
// filters turned by 180 degrees, and with inputs and outputs exchanged.
enum class Direction { Forward, BackwardInput };

struct FilterShape {
  // The shape [k, c, taps], where taps = r s.
  int64_t k;
  int64_t c;
  int64_t taps;
  // Both are counted in blocks.
  int64_t rows(Direction d) const { return channel_blocks(d == Direction::Forward ? c : k); }
  int64_t columns(Direction d) const { return channel_blocks(d == Direction::Forward ? k : c); }
};
inline FilterShape filter_shape(const Conv2dGeometry& g) { return {g.k, g.c, g.r * g.s}; }

// block[row][tap][column] = the filters of a block of rows and a block of columns, with zeros
// beyond the tensor's channels. For BackwardInput rows are k and columns are c; taps are not
// turned. `scratch` and `block` have taps * 256 floats.
void load_filter_block(const float* w, FilterShape shape, Direction direction, int64_t row_block,
                       int64_t column_block, float* scratch, float* block);

// The inverse for Forward: writes block[c][tap][k] into the tensor.
void store_filter_block(float* w, FilterShape shape, int64_t c_block, int64_t k_block,
                        const float* block);

// A convolution's bias, padded with zeros to whole blocks of channels.
class Bias {
 public:
  // `values` has [channels] numbers; null means zeros.
  Bias(Stream stream, const float* values, int64_t channels) {
    if (!values) return;
    padded_.emplace(stream, channel_blocks(channels) * kChannelBlock);
    float* const end = std::copy_n(values, channels, padded_->data());
    std::fill(end, padded_->data() + channel_blocks(channels) * kChannelBlock, 0.0f);
  }
  // Returns the values of the channels from `channel` on.
  Vector load(int64_t channel) const {
    return padded_ ? conv::load(padded_->data() + channel) : Vector{};
  }

 private:
  std::optional<Workspace<float>> padded_;
};

}  // namespace ringgrad::conv
