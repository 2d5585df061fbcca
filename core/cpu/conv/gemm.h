// The register-blocked matrix product under every convolution of this folder.
#pragma once

#include "ringgrad/core/cpu/conv/product.h"

namespace ringgrad::conv {

// Columns come in panels of two channel blocks. If the number of blocks is odd, the last panel has
// one.
inline constexpr int64_t kPanel = 2 * kChannelBlock;
inline int64_t panels(int64_t blocks) { return (blocks + 1) / 2; }
inline int64_t panel_width(int64_t panel, int64_t blocks) {
  return 2 * panel + 1 < blocks ? kPanel : kChannelBlock;
}

// The left matrix, in words (see product.h). Element (row, step) of segment i is at
// data[segments[i] + row row_stride + step step_stride]. The reduction runs over the steps of all
// segments, such as a filter's taps or the rows of an image.
struct LeftMatrix {
  const float* data;
  int64_t row_stride;
  int64_t step_stride;
  int64_t steps;            // steps in each segment
  const int64_t* segments;  // offsets
  int64_t segment_count;
  const float* scales = nullptr;  // for integers: factors of each row's sums
};

// The right matrix, with one row for each step of the reduction, all segments in sequence. If the
// width is 32, its second block of 16 columns begins block_stride after the first.
struct RightMatrix {
  const float* data;
  int64_t stride;
  int64_t block_stride;
  const float* scales = nullptr;  // for integers: factors of each column's sums
};

// A panel of `rows` rows and `width` columns, packed as register tiles read it: one tile's columns
// side by side, then the next tile's. If rows were longer than a tile's, a tile would read only
// every other cache line, and all of these share one half of the first-level cache. With AVX2 and
// two tiles in a row of 32 columns, products of 256 channels would take 10 % longer.
inline RightMatrix packed_panel(const float* data, int64_t rows, int64_t width) {
  return kLanes == kChannelBlock ? RightMatrix{data, width, kChannelBlock}
                                 : RightMatrix{data, kChannelBlock, rows * kChannelBlock};
}

// c[row][column] (+)= left right, for `rows` rows and `width` columns. The width is whole vectors
// and at most 32. Rows of c are c_stride floats apart. Rows are computed in groups of up to four,
// so up to three more rows of the left matrix are read and of c written, with meaningless values.
// REQUIRES: their memory exists.
template <class Product>
void multiply(const LeftMatrix& left, int64_t rows, const RightMatrix& right, int64_t width,
              float* c, int64_t c_stride, bool accumulate);

}  // namespace ringgrad::conv
