// The tiles of a Winograd convolution: their position in an image, and how they are read (zeros
// beyond the border), written (clipped at the border) and prefetched.
#pragma once

#include <algorithm>

#include "ringgrad/core/cpu/conv/transforms.h"

namespace ringgrad::conv {

// The tiles of all images in row order. Blocks of work are ranges of them.
struct TileGrid {
  int64_t images;
  int64_t rows;
  int64_t columns;
  int64_t count() const { return images * rows * columns; }
};

class TileCursor {
 public:
  TileCursor(const TileGrid& grid, int64_t tile)
      : rows_(grid.rows),
        columns_(grid.columns),
        image_(tile / (rows_ * columns_)),
        row_(tile / columns_ % rows_),
        column_(tile % columns_) {}
  void advance() {
    if (++column_ < columns_) return;
    column_ = 0;
    if (++row_ < rows_) return;
    row_ = 0;
    ++image_;
  }
  int64_t image() const { return image_; }
  int64_t row() const { return row_; }
  int64_t column() const { return column_; }

 private:
  int64_t rows_;
  int64_t columns_;
  int64_t image_;
  int64_t row_;
  int64_t column_;
};

inline constexpr int64_t kMaxUnitTiles = 256;

// The tiles of a unit, in an order in which the tiles that need one of the scheme's products are a
// range. In the last column or row of an image tiles may be ragged: they have fewer outputs, which
// not all products reach. For example, 7 x 7 pixels are 4 tiles of 4 x 4. Two of them do not need 6
// of F(4,3)'s 36 products, and the one in the corner does not need 11.
template <class Scheme>
class TileOrder {
 public:
  struct Tile {
    int64_t image;
    int64_t row;
    int64_t column;
  };
  struct Range {
    int64_t begin;
    int64_t end;
  };

  // The tiles [first, first + count) of the grid, at most kMaxUnitTiles. Their images have height x
  // width outputs.
  TileOrder(const TileGrid& grid, int64_t first, int64_t count, int64_t height, int64_t width)
      : last_row_((height - 1) % Scheme::kOutputStep),
        last_column_((width - 1) % Scheme::kOutputStep) {
    const auto kind = [&, ragged_rows = last_row_ + 1 < Scheme::kOutputStep,
                       ragged_columns =
                           last_column_ + 1 < Scheme::kOutputStep](const TileCursor& tile) {
      const bool below = ragged_rows && tile.row() == grid.rows - 1;
      const bool right = ragged_columns && tile.column() == grid.columns - 1;
      return below ? (right ? kCorner : kBelow) : right ? kRight : kWhole;
    };
    std::array<int64_t, kKinds> of_kind = {};
    TileCursor tile(grid, first);
    for (int64_t i = 0; i < count; ++i, tile.advance()) ++of_kind[kind(tile)];
    for (int i = 0; i < kKinds; ++i) start_[i + 1] = start_[i] + of_kind[i];
    std::array<int64_t, kKinds + 1> next = start_;
    tile = TileCursor(grid, first);
    for (int64_t i = 0; i < count; ++i, tile.advance())
      tiles_[next[kind(tile)]++] = {tile.image(), tile.row(), tile.column()};
  }

  int64_t count() const { return start_[kKinds]; }
  const Tile& operator[](int64_t i) const { return tiles_[i]; }

  // Returns the tiles that have an output which this product of the kEdge x kEdge reaches.
  Range needing(int product) const {
    const bool reaches_last_row = Scheme::first_output(product / Scheme::kEdge) <= last_row_;
    const bool reaches_last_column = Scheme::first_output(product % Scheme::kEdge) <= last_column_;
    const int first = reaches_last_column ? kRight : kWhole;
    const int beyond = !reaches_last_row ? kBelow : reaches_last_column ? kKinds : kCorner;
    return {start_[first], start_[beyond]};
  }

 private:
  enum Kind { kRight, kWhole, kBelow, kCorner, kKinds };  // in this order

  // the position of the last output in such a tile
  int64_t last_row_;
  int64_t last_column_;
  std::array<int64_t, kKinds + 1> start_ = {};  // for each kind
  std::array<Tile, kMaxUnitTiles> tiles_;
};

// Applies the transform F to the square of F::kIn pixels whose first is (top, left) of an image.
// Pixels outside are zero. `plane` points to the first lane of pixel (0, 0).
template <class F, class T, class Put>
[[gnu::always_inline]] inline void transform_square(const T* plane, int64_t h, int64_t w,
                                                    int64_t top, int64_t left, const Put& put) {
  constexpr int kEdge = F::kIn;
  constexpr bool kCheapGet = std::is_same_v<T, float>;  // others are widened
  const T* const corner = plane + (top * w + left) * kChannelBlock;
  if (!kLoadsByMask && top >= 0 && left >= 0 && top + kEdge <= h && left + kEdge <= w) {
    transform<F, kCheapGet>(
        [&](int i, int j) { return load(corner + (i * w + j) * kChannelBlock); }, put);
    return;
  }
  static constexpr T kOutside[kEdge * kChannelBlock] = {};
  const T* row[kEdge];
  bool column_inside[kEdge];
  RINGGRAD_UNROLL
  for (int i = 0; i < kEdge; ++i) {
    row[i] = top + i >= 0 && top + i < h ? corner + i * w * kChannelBlock : kOutside;
    column_inside[i] = left + i >= 0 && left + i < w;
  }
  transform<F, kCheapGet>(
      [&](int i, int j) { return load_if(column_inside[j], row[i] + j * kChannelBlock); }, put);
}

// The inverse: applies the transform F to the vectors get(i, j). put(offset, v) receives the pixels
// inside the image; offset counts numbers from the first pixel (top, left), which is inside.
template <class F, class Get, class Put>
[[gnu::always_inline]] inline void transform_clipped(int64_t h, int64_t w, int64_t top,
                                                     int64_t left, const Get& get, const Put& put) {
  constexpr int kEdge = F::kOut;
  if (top + kEdge <= h && left + kEdge <= w) {
    transform<F>(get, [&](int i, const Vector* row) {
      RINGGRAD_UNROLL
      for (int j = 0; j < kEdge; ++j) put((i * w + j) * kChannelBlock, row[j]);
    });
    return;
  }
  Vector square[kEdge][kEdge];
  transform<F>(get, [&](int i, const Vector* row) { std::copy_n(row, kEdge, square[i]); });
  const int64_t rows = std::min<int64_t>(kEdge, h - top);
  const int64_t columns = std::min<int64_t>(kEdge, w - left);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) put((i * w + j) * kChannelBlock, square[i][j]);
}

// Prefetches 16 channels of a tile's own pixels, `step` x `step`. They are fetched for reading, or
// for writing if T is not const.
template <class T>
[[gnu::always_inline]] inline void fetch_tile(T* x, const BlockedShape& shape, int64_t step,
                                              int64_t image, int64_t block, int64_t row,
                                              int64_t column) {
  const int64_t top = row * step;
  const int64_t left = column * step;
  const int64_t height = std::min(step, shape.h - top);
  const int64_t width = std::min(step, shape.w - left);
  T* line =
      x + (image * shape.blocks + block) * shape.plane() + (top * shape.w + left) * kChannelBlock;
  for (int64_t i = 0; i < height; ++i, line += shape.w * kChannelBlock)
    for (int64_t j = 0; j < width; j += sizeof(float) / sizeof(T)) {
      if constexpr (!std::is_const_v<T> && sizeof(T) < sizeof(float))
        prefetch_for_writing(line + j * kChannelBlock);
      else
        prefetch_for_later(line + j * kChannelBlock);
    }
}

// Note [What is fetched when]
// Matrix products leave the memory idle. Meanwhile the pixels that the next block of tiles reads
// are prefetched into the second-level cache, and those that this block writes. They are fetched a
// few lines at a time, because a core can have few fetches under way, and the product waits for the
// rest. Measured on Zen 4: a prefetch for writing, which also fills the first level, costs float32
// up to 15 %. For bfloat16, with half as many lines, it gains up to 8 % if it makes a difference.
// If a block's products read more than that cache holds, its pixels have been evicted when they are
// needed, and come from the third level. So they are prefetched again, 16 tiles ahead of the
// transform (64 to 256 channels: weight gradient -4 to -8 %; smaller layers gain nothing).

// Prefetches the pixels of `count` tiles from `first` on, in all channels, in `parts` calls of
// fetch(). T is float or bfloat16, const or not. If x is null, nothing is fetched.
template <class T>
class TilePrefetcher {
 public:
  TilePrefetcher(T* x, const BlockedShape& shape, const TileGrid& grid, int64_t step, int64_t first,
                 int64_t count, int64_t parts)
      : x_(x),
        shape_(shape),
        grid_(grid),
        step_(step),
        first_(first),
        count_(x ? std::clamp<int64_t>(grid.count() - first, 0, count) : 0),
        quota_((count_ * shape.blocks + parts - 1) / parts),
        tile_(grid, first) {}

  void fetch() {
    for (int64_t i = 0; i < quota_ && block_ < shape_.blocks; ++i) {
      fetch_tile(x_, shape_, step_, tile_.image(), block_, tile_.row(), tile_.column());
      tile_.advance();
      if (++done_ < count_) continue;
      done_ = 0;
      ++block_;
      tile_ = TileCursor(grid_, first_);
    }
  }

 private:
  T* x_;
  const BlockedShape& shape_;
  const TileGrid& grid_;
  int64_t step_;
  int64_t first_;
  int64_t count_;
  int64_t quota_;
  int64_t block_ = 0;
  int64_t done_ = 0;
  TileCursor tile_;  // tile number first_ + done_
};

// Prefetches 16 channels of the tile that is 16 after number i of `tiles`. After the last tile it
// fetches from the next channels.
template <class Scheme, class T>
[[gnu::always_inline]] inline void fetch_ahead(const T* x, const BlockedShape& shape, int64_t step,
                                               const TileOrder<Scheme>& tiles, int64_t i,
                                               int64_t block) {
  if ((i += 16) >= tiles.count()) {
    i -= tiles.count();
    ++block;
  }
  if (block >= shape.blocks || i >= tiles.count()) return;
  fetch_tile(x, shape, step, tiles[i].image, block, tiles[i].row, tiles[i].column);
}

}  // namespace ringgrad::conv
