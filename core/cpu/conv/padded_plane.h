// Pieces of a plane (one channel of one image) with zeros around it, so that loops over a window's
// taps need no border case. Private to core/cpu/conv.
#pragma once

#include <cstring>

#include "ringgrad/core/cpu/conv/vector.h"
#include "ringgrad/core/cpu/im2col.h"

namespace ringgrad::conv {

// A register full of floats or doubles.
template <class T>
struct LanesOf {
  static constexpr int kCount = kLanes * sizeof(float) / sizeof(T);
  typedef T Type __attribute__((vector_size(kLanes * sizeof(float))));
};
template <class T>
using Lanes = typename LanesOf<T>::Type;
template <class T>
inline constexpr int kLanesOf = LanesOf<T>::kCount;

template <class T>
Lanes<T> load_lanes(const T* p) {
  Lanes<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
void store_lanes(T* p, Lanes<T> v) {
  std::memcpy(p, &v, sizeof v);
}
template <class T>
Lanes<T> broadcast(T value) {
  return value - Lanes<T>{};  // a sum would turn -0 into 0 and so do work
}
// Loads the first `count` numbers, followed by zeros. As a separate function it is one masked
// instruction.
template <class T>
[[gnu::noinline]] Lanes<T> load_lanes(const T* p, int count) {
  T v[kLanesOf<T>];
  for (int lane = 0; lane < kLanesOf<T>; ++lane) v[lane] = lane < count ? p[lane] : T{0};
  return load_lanes(v);
}

// Returns a mask of the first `count` lanes.
template <class T>
auto are_first(int64_t count) {
  Lanes<T> lane;
  for (int i = 0; i < kLanesOf<T>; ++i) lane[i] = static_cast<T>(i);
  return lane < static_cast<T>(count);
}

struct Piece {
  int64_t row;
  int64_t column;
  int64_t rows;
  int64_t columns;
};
// Cuts a plane into equal pieces of about 4096 elements. The cut depends on its size alone.
struct Pieces {
  int64_t height;
  int64_t width;
  int64_t down;
  int64_t across;

  Pieces(int64_t height, int64_t width)
      : height(height),
        width(width),
        down(cpu::ceil_div(height, std::max<int64_t>(16, 4096 / std::max<int64_t>(1, width)))),
        across(cpu::ceil_div(width, 4096 / std::clamp<int64_t>(height, 1, 16))) {}
  int64_t count() const { return down * across; }
  Piece operator()(int64_t i) const {
    const int64_t row = height * (i / across) / down;
    const int64_t column = width * (i % across) / across;
    return {row, column, height * (i / across + 1) / down - row,
            width * (i % across + 1) / across - column};
  }
  Piece largest() const {
    return {0, 0, cpu::ceil_div(height, down), cpu::ceil_div(width, across)};
  }
};

// The rows of a plane from `top` on and its columns from `left` on, with zeros outside of the
// plane. Columns are grouped into as many phases as the horizontal stride. So the pixels that
// neighbouring windows read through one tap are side by side, whatever the stride.
struct PaddedPlane {
  // columns of each phase
  int64_t top;
  int64_t left;
  int64_t rows;
  int64_t columns;
  int64_t phases = 1;

  int64_t row_size() const { return phases * columns; }
  // Returns the position of a row and a column, counted from `top` and `left`.
  int64_t at(int64_t row, int64_t column) const {
    return row * row_size() + column % phases * columns + column / phases;
  }
  // The size includes one row more, to be cut into phases, and one vector, for readers of whole
  // vectors.
  template <class T>
  int64_t size() const {
    return (rows + 1) * row_size() + kLanesOf<T>;
  }

  // REQUIRES: `to` is zeros, or was filled by a plane of the same size from the same position.
  template <class T>
  void copy(T* to, const T* plane, int64_t h, int64_t w) const {
    const int64_t first = std::clamp<int64_t>(-top, 0, rows);
    const int64_t last = std::clamp(h - top, first, rows);
    const int64_t begin = std::clamp<int64_t>(-left, 0, row_size());
    const int64_t end = std::clamp(w - left, begin, row_size());
    T* const whole = to + rows * row_size();
    for (int64_t row = first; row < last && begin < end; ++row) {
      T* const start = to + row * row_size();
      copy_row((phases > 1 ? whole : start) + begin, plane + (top + row) * w + left + begin,
               end - begin);
      for (int64_t phase = 0; phase < phases && phases > 1; ++phase)
        cpu::copy_every(start + phase * columns, whole + phase, columns, phases);
    }
  }

 private:
  // Rows are copied from first to last. A row of few columns may write zeros beyond its end; the
  // next row overwrites them.
  template <class T>
  static void copy_row(T* to, const T* from, int64_t n) {
    constexpr int kWidth = kLanesOf<T>;
    if (n < kWidth) return store_lanes(to, load_lanes(from, static_cast<int>(n)));
    for (int64_t i = 0; i < n; i += kWidth) {
      const int64_t column = std::min(i, n - kWidth);
      store_lanes(to + column, load_lanes(from + column));
    }
  }
};

}  // namespace ringgrad::conv
