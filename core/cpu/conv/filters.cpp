#include "ringgrad/core/cpu/conv/filters.h"

namespace ringgrad::conv {
namespace {

// to[j][i] = from[i][j] for i < rows <= 16, j < columns. `to` has 16 floats per row. Whole blocks
// are transposed in registers.
void transpose_in(const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                  float* to) {
  const int64_t whole = rows == kChannelBlock ? columns / kChannelBlock * kChannelBlock : 0;
  for (int64_t j = 0; j < whole; j += kChannelBlock)
    transpose_block(from + j, from_stride, to + j * kChannelBlock, kChannelBlock);
  for (int64_t j = whole; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) to[j * kChannelBlock + i] = from[i * from_stride + j];
}

}  // namespace

void load_filter_block(const float* w, FilterShape shape, Direction direction, int64_t row_block,
                       int64_t column_block, float* scratch, float* block) {
  const bool forward = direction == Direction::Forward;
  const int64_t c0 = kChannelBlock * (forward ? row_block : column_block);
  const int64_t k0 = kChannelBlock * (forward ? column_block : row_block);
  const int64_t c = std::min(kChannelBlock, shape.c - c0);
  const int64_t k = std::min(kChannelBlock, shape.k - k0);
  const int64_t taps = shape.taps;

  float* const by_c = forward ? block : scratch;  // [c][tap][k]
  if (c < kChannelBlock || k < kChannelBlock)
    std::fill_n(by_c, kChannelBlock * taps * kChannelBlock, 0.0f);
  transpose_in(w + (k0 * shape.c + c0) * taps, shape.c * taps, k, c * taps, by_c);
  if (forward) return;
  for (int64_t tap = 0; tap < taps; ++tap)
    transpose_block(by_c + tap * kChannelBlock, taps * kChannelBlock, block + tap * kChannelBlock,
                    taps * kChannelBlock);
}

void store_filter_block(float* w, FilterShape shape, int64_t c_block, int64_t k_block,
                        const float* block) {
  const int64_t c0 = kChannelBlock * c_block;
  const int64_t k0 = kChannelBlock * k_block;
  const int64_t taps = shape.taps;
  const int64_t c = std::min(kChannelBlock, shape.c - c0);
  const int64_t k = std::min(kChannelBlock, shape.k - k0);
  float* const to = w + (k0 * shape.c + c0) * taps;
  const int64_t whole = k == kChannelBlock ? c * taps / kChannelBlock * kChannelBlock : 0;
  for (int64_t j = 0; j < whole; j += kChannelBlock)
    transpose_block(block + j * kChannelBlock, kChannelBlock, to + j, shape.c * taps);
  for (int64_t j = whole; j < c * taps; ++j)
    for (int64_t i = 0; i < k; ++i) to[i * shape.c * taps + j] = block[j * kChannelBlock + i];
}

}  // namespace ringgrad::conv
