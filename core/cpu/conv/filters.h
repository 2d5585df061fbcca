// Filters [K, C, R, S] in blocks of 16 x 16 channels, as the kernels want them: 16 columns (the channels a kernel
// produces) side by side in a vector, one row for each channel it sums over.
#pragma once

#include "ringgrad/core/cpu/conv/vector.h"

namespace ringgrad::conv {

// Which convolution a filter takes part in. The data gradient is a convolution of dy with the filters turned by 180
// degrees, and with inputs and outputs exchanged.
enum class Direction { Forward, BackwardInput };

struct FilterShape {
  int64_t k, c, taps;  // [k, c, taps], taps = r s
  int64_t rows(Direction d) const { return channel_blocks(d == Direction::Forward ? c : k); }     // in blocks
  int64_t columns(Direction d) const { return channel_blocks(d == Direction::Forward ? k : c); }  // in blocks
};
inline FilterShape filter_shape(const Conv2dGeometry& g) { return {g.k, g.c, g.r * g.s}; }

// block[row][tap][column] = the filters of a block of rows and a block of columns; zeros beyond the tensor's channels.
// For BackwardInput rows are k and columns are c (taps are not turned). `scratch` and `block` have taps * 256 floats.
void load_filter_block(const float* w, FilterShape shape, Direction direction, int64_t row_block, int64_t column_block,
                       float* scratch, float* block);

// The inverse, for Forward: writes block[c][tap][k] into the tensor.
void store_filter_block(float* w, FilterShape shape, int64_t c_block, int64_t k_block, const float* block);

}  // namespace ringgrad::conv
