// Both operands are first copied tile by tile, as the processor reads them, with zeros beyond their
// ends:
//
//   left    [batch][16 rows][32 terms]       a tile: row, term
//   right   [batch][16 columns][32 terms]    a tile: pair of terms, column, term of the pair
//
// A unit of work is a block of up to 128 × 128 elements of c. Its sums stay in the second-level
// cache while the terms are read, 1,024 at a time. Two left and two right tiles are multiplied at a
// time into four tiles of sums.
#include "ringgrad/core/cpu/amx/matmul.h"

#include <algorithm>

#include "ringgrad/core/cpu/amx/tile_unit.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/widen.h"
#include "ringgrad/core/cpu/workspace.h"

namespace ringgrad::amx {
namespace {

using cpu::ceil_div;

// A tile's rows, and terms in a row.
constexpr int64_t kSide = kTileRows;
constexpr int64_t kDepth = kTileRowBytes / 2;
constexpr int64_t kTile = kSide * kDepth;
constexpr int64_t kSums = kSide * kSide;
constexpr int64_t kDepthBlock = 32;  // tiles of a row or column that are processed together
constexpr int64_t kMostPairs = 4;    // pairs of tiles in a block's rows, and in its columns
constexpr int64_t kLeastUnits = 16;

// A matrix of a batch: element (i, j) is at i · row + j · column.
struct Strided {
  const bfloat16* data;
  int64_t row;
  int64_t column;
};

void pack_left(const Strided& a, int64_t rows, int64_t terms, bfloat16* tile) {
  if (rows < kSide || terms < kDepth) std::fill_n(tile, kTile, bfloat16{});
  for (int64_t i = 0; i < rows; ++i, tile += kDepth)
    if (a.column == 1)
      std::memcpy(tile, a.data + i * a.row, static_cast<size_t>(terms) * sizeof(bfloat16));
    else
      for (int64_t k = 0; k < terms; ++k) tile[k] = a.data[i * a.row + k * a.column];
}

void pack_right(const Strided& b, int64_t columns, int64_t terms, bfloat16* tile) {
  if (columns < kSide || terms < kDepth) std::fill_n(tile, kTile, bfloat16{});
  const auto at = [&](int64_t k, int64_t j) { return tile + k / 2 * 2 * kSide + 2 * j + k % 2; };
  if (b.column == 1)
    for (int64_t k = 0; k < terms; ++k)
      for (int64_t j = 0; j < columns; ++j) *at(k, j) = b.data[k * b.row + j];
  else
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t k = 0; k < terms; ++k) *at(k, j) = b.data[k * b.row + j * b.column];
}

// All tiles of one operand, for each batch or for the one that is repeated.
class Packed {
 public:
  // Calls pack(matrix, first term, first row or column, its tile) for each of `sides` × `depth`
  // tiles.
  Packed(Stream stream, const Tensor& x, int64_t across, int64_t along, int64_t length,
         int64_t terms, auto pack)
      : sides_(ceil_div(length, 2 * kSide) * 2),
        depth_(ceil_div(terms, kDepth)),
        repeated_(x.strides()[0] == 0),
        tiles_(stream, (repeated_ ? 1 : x.shape()[0]) * sides_ * depth_ * kTile) {
    const int64_t batches = repeated_ ? 1 : x.shape()[0];
    const int64_t row = x.strides()[1];
    const int64_t column = x.strides()[2];
    parallel_for(stream, batches * sides_, 1, [&](int64_t unit, int64_t) {
      const int64_t side = unit % sides_ * kSide;
      const bfloat16* const data =
          x.data<bfloat16>() + unit / sides_ * x.strides()[0] + side * across;
      for (int64_t k = 0; k < depth_; ++k)
        pack(Strided{data + k * kDepth * along, row, column},
             std::clamp<int64_t>(length - side, 0, kSide), std::min(kDepth, terms - k * kDepth),
             tiles_.data() + (unit * depth_ + k) * kTile);
    });
  }
  int64_t depth() const { return depth_; }
  const bfloat16* tile(int64_t batch, int64_t side, int64_t k) const {
    return tiles_.data() + (((repeated_ ? 0 : batch) * sides_ + side) * depth_ + k) * kTile;
  }

 private:
  int64_t sides_;
  int64_t depth_;
  bool repeated_;
  cpu::Workspace<bfloat16> tiles_;
};

template <class Unit>
class Product {
 public:
  Product(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias)
      : stream_(stream),
        c_(c.data<bfloat16>()),
        bias_(cpu::widen(bias)),
        batches_(c.shape()[0]),
        m_(c.shape()[1]),
        n_(c.shape()[2]),
        left_(stream, a, a.strides()[1], a.strides()[2], m_, a.shape()[2], pack_left),
        right_(stream, b, b.strides()[2], b.strides()[1], n_, a.shape()[2], pack_right) {}

  void run() {
    const int64_t row_pairs = ceil_div(m_, 2 * kSide);
    const int64_t column_pairs = ceil_div(n_, 2 * kSide);
    int64_t rows = kMostPairs;
    int64_t columns = kMostPairs;  // in pairs, for one block
    const auto units = [&] {
      return batches_ * ceil_div(row_pairs, rows) * ceil_div(column_pairs, columns);
    };
    while (units() < kLeastUnits && rows * columns > 1) (rows >= columns ? rows : columns) /= 2;
    const int64_t row_blocks = ceil_div(row_pairs, rows);
    const int64_t column_blocks = ceil_div(column_pairs, columns);
    cpu::ThreadWorkspaces workspaces(stream_, rows * columns * 4 * kSums);
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) shapes.set(tile, kSide, kTileRowBytes);
    parallel_for(stream_, units(), 1, [&](int64_t unit, int64_t) {
      const cpu::ThreadWorkspaces::Slice slice(workspaces);
      const int64_t row = unit / column_blocks % row_blocks * rows;
      const int64_t column = unit % column_blocks * columns;
      Unit::configure(shapes);
      run_block(unit / (row_blocks * column_blocks), row, std::min(row + rows, row_pairs), column,
                std::min(column + columns, column_pairs), slice.data());
      Unit::release();
    });
  }

 private:
  void run_block(int64_t batch, int64_t first_row, int64_t end_row, int64_t first_column,
                 int64_t end_column, float* sums) const {
    const int64_t depth = left_.depth();
    for (int64_t k = 0; k == 0 || k < depth; k += kDepthBlock) {
      float* pair = sums;
      for (int64_t i = first_row; i < end_row; ++i)
        for (int64_t j = first_column; j < end_column; ++j, pair += 4 * kSums) {
          multiply(left_.tile(batch, 2 * i, k), right_.tile(batch, 2 * j, k),
                   (2 * j + 1) * kSide < n_, k == 0, std::min(kDepthBlock, depth - k), pair);
          if (k + kDepthBlock >= depth) write(batch, i, j, pair);
        }
    }
  }

  // Computes four tiles of sums over `count` tiles of terms. If c ends in the first column of
  // tiles, two of them are not computed.
  void multiply(const bfloat16* left, const bfloat16* right, bool wide, bool first, int64_t count,
                float* sums) const {
    const int64_t next = left_.depth() * kTile;
    if (first) {
      Unit::template zero<0>();
      Unit::template zero<1>();
      Unit::template zero<2>();
      Unit::template zero<3>();
    } else {
      Unit::template load<0>(sums, kTileRowBytes);
      Unit::template load<1>(sums + kSums, kTileRowBytes);
      Unit::template load<2>(sums + 2 * kSums, kTileRowBytes);
      Unit::template load<3>(sums + 3 * kSums, kTileRowBytes);
    }
    for (int64_t k = 0; k < count; ++k, left += kTile, right += kTile) {
      Unit::template load<6>(right, kTileRowBytes);
      Unit::template load<4>(left, kTileRowBytes);
      Unit::template dot<0, 4, 6>();
      Unit::template load<5>(left + next, kTileRowBytes);
      Unit::template dot<2, 5, 6>();
      if (!wide) continue;
      Unit::template load<7>(right + next, kTileRowBytes);
      Unit::template dot<1, 4, 7>();
      Unit::template dot<3, 5, 7>();
    }
    Unit::template store<0>(sums, kTileRowBytes);
    Unit::template store<1>(sums + kSums, kTileRowBytes);
    Unit::template store<2>(sums + 2 * kSums, kTileRowBytes);
    Unit::template store<3>(sums + 3 * kSums, kTileRowBytes);
  }

  void write(int64_t batch, int64_t row_pair, int64_t column_pair, const float* sums) const {
    const float* const bias = bias_.defined() ? bias_.data<float>() : nullptr;
    for (int64_t t = 0; t < 4; ++t, sums += kSums) {
      const int64_t row = (2 * row_pair + t / 2) * kSide;
      const int64_t column = (2 * column_pair + t % 2) * kSide;
      const int64_t rows = std::min(kSide, m_ - row);
      const int64_t columns = std::min(kSide, n_ - column);
      for (int64_t i = 0; i < rows; ++i) {
        bfloat16* const to = c_ + (batch * m_ + row + i) * n_ + column;
        for (int64_t j = 0; j < columns; ++j)
          to[j] = static_cast<bfloat16>(sums[i * kSide + j] + (bias ? bias[column + j] : 0));
      }
    }
  }

  Stream stream_;
  bfloat16* c_;
  Tensor bias_;
  int64_t batches_;
  int64_t m_;
  int64_t n_;
  Packed left_;
  Packed right_;
};

}  // namespace

void matmul(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  visit_tiles([&]<class Unit>() { Product<Unit>(stream, c, a, b, bias).run(); });
}

}  // namespace ringgrad::amx
