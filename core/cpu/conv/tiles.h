// The tiles of a Winograd convolution: where they lie in an image, how they are read (zeros beyond the border)
// and written (clipped at the border).
#pragma once

#include <algorithm>

#include "ringgrad/core/cpu/conv/transforms.h"

namespace ringgrad::conv {

// The tiles of all images in row order: the unit of blocking is a range of them.
struct TileGrid {
  int64_t images, rows, columns;
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
  int64_t rows_, columns_, image_, row_, column_;
};

// The transform F of the square of F::kIn pixels whose first one is (top, left) of an image; pixels outside are zero.
// `plane` points to the first of the lanes in question of pixel (0, 0).
template <class F, class T, class Put>
[[gnu::always_inline]] inline void transform_square(const T* plane, int64_t h, int64_t w, int64_t top, int64_t left,
                                                    const Put& put) {
  constexpr int kEdge = F::kIn;
  const T* const corner = plane + (top * w + left) * kBlock;
  if (top >= 0 && left >= 0 && top + kEdge <= h && left + kEdge <= w) {
    transform<F>([&](int i, int j) { return load(corner + (i * w + j) * kBlock); }, put);
    return;
  }
  bool row_inside[kEdge], column_inside[kEdge];
  RINGGRAD_UNROLL
  for (int i = 0; i < kEdge; ++i) {
    row_inside[i] = top + i >= 0 && top + i < h;
    column_inside[i] = left + i >= 0 && left + i < w;
  }
  transform<F>(
      [&](int i, int j) { return row_inside[i] && column_inside[j] ? load(corner + (i * w + j) * kBlock) : Vector{}; },
      put);
}

// The inverse: the transform F of vectors that get(i, j) yields, of which put(offset, v) takes the pixels inside the
// image; offset is in numbers from the first pixel (top, left), which is inside.
template <class F, class Get, class Put>
[[gnu::always_inline]] inline void transform_clipped(int64_t h, int64_t w, int64_t top, int64_t left, const Get& get,
                                                     const Put& put) {
  constexpr int kEdge = F::kOut;
  if (top + kEdge <= h && left + kEdge <= w) {
    transform<F>(get, [&](int i, int j, Vector v) { put((i * w + j) * kBlock, v); });
    return;
  }
  Vector square[kEdge * kEdge];
  transform<F>(get, [&](int i, int j, Vector v) { square[i * kEdge + j] = v; });
  const int64_t rows = std::min<int64_t>(kEdge, h - top), columns = std::min<int64_t>(kEdge, w - left);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) put((i * w + j) * kBlock, square[i * kEdge + j]);
}

}  // namespace ringgrad::conv
