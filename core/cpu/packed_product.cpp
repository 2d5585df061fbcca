// The right factor is copied into panels in which what a register tile reads lies side by side, [panel of 32 columns]
// [term][column]: a block of them, for one segment of terms, stays in the second-level cache while the rows of the left
// factor pass. Of those a tile reads one number after the other, so they stay where they are, 48 rows of a segment in
// the first-level cache; only a transposed left factor is copied, as [term][row].
#include "ringgrad/core/cpu/packed_product.h"

#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/conv/gemm.h"

namespace ringgrad::cpu {
namespace {

constexpr int64_t kRows = 48, kColumns = conv::kPanel;  // of a panel
constexpr int64_t kSegment = 128, kWide = 8;            // terms; panels of a block
constexpr int64_t kLeft = kSegment * kRows, kRight = kSegment * kColumns * kWide, kTile = (kRows + 3) * kColumns;

// The rows of `a` as a register tile reads them, up to three more than there are: from a copy where those do not exist.
conv::LeftMatrix left_of(const Matrix<float>& a, float* memory) {
  static constexpr int64_t kBegin = 0;
  if (!a.is_transposed && a.rows % 4 == 0) return {a.data, a.stride, 1, a.cols, &kBegin, 1};
  const int64_t side = ceil_div(a.rows, 4) * 4;
  pack(a, side, memory);
  return {memory, 1, side, a.cols, &kBegin, 1};
}

// c (+)= left right. Through `scratch` where c ends amid a tile: those write whole vectors, and rows by fours.
void multiply_panels(const Matrix<float>& c, const conv::LeftMatrix& left, const float* right, bool accumulate,
                     float* scratch) {
  const int64_t width = c.cols > kChannelBlock ? kColumns : kChannelBlock;
  const conv::RightMatrix b{right, kColumns, kChannelBlock};
  if (c.rows % 4 == 0 && c.cols == width)
    return conv::multiply<conv::Float32Product>(left, c.rows, b, width, c.data, c.stride, accumulate);
  conv::multiply<conv::Float32Product>(left, c.rows, b, width, scratch, kColumns, false);
  for (int64_t i = 0; i < c.rows; ++i)
    for (int64_t j = 0; j < c.cols; ++j) {
      float& sum = *c.at(i, j);
      sum = accumulate ? sum + scratch[i * kColumns + j] : scratch[i * kColumns + j];
    }
}

}  // namespace

void pack(const Matrix<float>& x, int64_t side, float* to) {
  constexpr int64_t kBlock = kChannelBlock;
  if (x.rows < side)
    for (int64_t t = 0; t < x.cols; ++t) std::fill(to + t * side + x.rows, to + (t + 1) * side, 0.0f);
  if (x.is_transposed) {
    for (int64_t t = 0; t < x.cols; ++t) std::copy_n(x.at(0, t), x.rows, to + t * side);
    return;
  }
  const int64_t whole_rows = x.rows / kBlock * kBlock, whole_terms = x.cols / kBlock * kBlock;
  for (int64_t i = 0; i < whole_rows; i += kBlock)
    for (int64_t t = 0; t < whole_terms; t += kBlock)
      conv::transpose_block(x.at(i, t), x.stride, to + t * side + i, side);
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t t = i < whole_rows ? whole_terms : 0; t < x.cols; ++t) to[t * side + i] = *x.at(i, t);
}

bool suits_packed_product(int64_t rows, int64_t columns, int64_t terms) {
  return rows >= 8 && columns >= kChannelBlock && terms >= 8;
}

int64_t packed_product_memory() { return kLeft + kRight + kTile; }

void packed_product(const Matrix<float>& c, const Matrix<float>& a, const Matrix<float>& b, bool accumulate,
                    float* memory) {
  float *const left_memory = memory, *const right = left_memory + kLeft, *const scratch = right + kRight;
  for (int64_t column = 0; column < c.cols; column += kColumns * kWide) {
    const int64_t columns = std::min(kColumns * kWide, c.cols - column);
    for (int64_t term = 0; term < a.cols; term += kSegment) {
      const int64_t terms = std::min(kSegment, a.cols - term);
      for (int64_t j = 0; j < columns; j += kColumns)
        pack(b.block(term, column + j, terms, std::min(kColumns, columns - j)).transposed(), kColumns,
             right + j * terms);
      for (int64_t row = 0; row < c.rows; row += kRows) {
        const int64_t rows = std::min(kRows, c.rows - row);
        const conv::LeftMatrix left = left_of(a.block(row, term, rows, terms), left_memory);
        for (int64_t j = 0; j < columns; j += kColumns)
          multiply_panels(c.block(row, column + j, rows, std::min(kColumns, columns - j)), left, right + j * terms,
                          accumulate || term > 0, scratch);
      }
    }
  }
}

}  // namespace ringgrad::cpu
