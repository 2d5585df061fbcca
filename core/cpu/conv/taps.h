// The taps of a window as offsets into a padded plane. Private to core/cpu/conv.
#pragma once

#include "ringgrad/core/cpu/conv/padded_plane.h"
#include "ringgrad/core/cpu/workspace.h"

namespace ringgrad::conv {

// Taps of one column of a window, each one row of windows below the last. Row i reads through the
// second tap what row i + 1 reads through the first, so one load serves both.
inline constexpr int kMostInRun = 4;
template <class T>
struct Run {
  // from the window's position to the first tap's
  int64_t offset;
  int64_t count;
  T weight[kMostInRun];
};

// Calls body.operator()<height>(row) for blocks of at most 8 rows of about equal height. That is as
// many sums in registers as hide the latency of one.
template <int kMost = 8, class Body>
void for_block_of_rows(int64_t row, int64_t height, Body&& body) {
  if constexpr (kMost > 1)
    if (height < kMost) return for_block_of_rows<kMost - 1>(row, height, body);
  body.template operator()<kMost>(row);
}
template <class Body>
void for_blocks_of_rows(int64_t rows, Body&& body) {
  for (int64_t row = 0, blocks = cpu::ceil_div(rows, 8); blocks > 0; --blocks) {
    const int64_t height = cpu::ceil_div(rows - row, blocks);
    for_block_of_rows(row, height, body);
    row += height;
  }
}

template <class T>
class Taps {
 public:
  // `pitch` is the distance from one row of windows to the next.
  Taps(Stream stream, int64_t most, int64_t pitch) : runs_(stream, most), pitch_(pitch) {}
  void clear() { size_ = 0; }
  void add(int64_t offset, T weight) {
    Run<T>* const last = end() - 1;
    if (size_ > 0 && last->count < kMostInRun && offset == last->offset + last->count * pitch_)
      last->weight[last->count++] = weight;
    else
      runs_[size_++] = {offset, 1, {weight}};
  }
  const Run<T>* begin() const { return runs_.data(); }
  Run<T>* end() const { return runs_.data() + size_; }
  int64_t pitch() const { return pitch_; }

 private:
  cpu::Workspace<Run<T>> runs_;
  int64_t pitch_;
  int64_t size_ = 0;
};

// Returns the part of x that the windows of a piece of y read. Its rows are as long as the largest
// piece needs.
inline PaddedPlane seen_by(const cpu::ConvShape& shape, const Piece& piece, int64_t largest) {
  const int64_t columns = largest + (shape.s - 1) * shape.dilation.w / shape.stride.w;
  return {.top = piece.row * shape.stride.h - shape.padding.h,
          .left = piece.column * shape.stride.w - shape.padding.w,
          .rows = (piece.rows - 1) * shape.stride.h + (shape.r - 1) * shape.dilation.h + 1,
          .columns = shape.stride.w == 1 ? columns : cpu::ceil_div(columns, kLanes) * kLanes,
          .phases = shape.stride.w};
}
// Calls body(r, s) for windows in bands of as many rows as a run has, column by column, so that
// equal runs are neighbours.
template <class Body>
void for_each_tap(const cpu::ConvShape& shape, Body&& body) {
  constexpr int64_t kBand = kMostInRun;
  for (int64_t band = 0; band < shape.r; band += kBand)
    for (int64_t s = 0; s < shape.s; ++s)
      for (int64_t r = band; r < std::min(shape.r, band + kBand); ++r) body(r, s);
}
// `w` [r, s] may be null if the weights do not matter.
template <class T>
void add_window(Taps<T>& taps, const cpu::ConvShape& shape, const PaddedPlane& seen, const T* w) {
  for_each_tap(shape, [&](int64_t r, int64_t s) {
    taps.add(seen.at(r * shape.dilation.h, s * shape.dilation.w), w ? w[r * shape.s + s] : T{0});
  });
}

}  // namespace ringgrad::conv
