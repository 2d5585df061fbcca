// im2col and its adjoint. im2col copies the pixels that each tap of a filter reads into rows of a
// matrix, so that a convolution becomes a matrix product (Chellapilla, Puri & Simard 2006). Private
// to core/cpu.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/kernels/geometry.h"

namespace ringgrad::cpu {

// The sizes of one convolution. c and k count the channels and filters of one group.
struct ConvShape {
  int64_t n;
  int64_t groups;
  int64_t c;
  int64_t h;
  int64_t w;
  int64_t k;
  int64_t r;
  int64_t s;
  int64_t p;
  int64_t q;
  Pair stride;
  Pair padding;
  Pair dilation;

  int64_t depth() const { return c * r * s; }
};

// Whole output rows of one image.
struct Strip {
  int64_t image;
  int64_t row;
  int64_t rows;
};

// Cuts the pixels of a group into strips, by the shape alone. A strip has at least kPixels pixels,
// because the filters are packed again for each strip. If possible, its im2col matrix has at most
// kElements elements.
struct Strips {
  static constexpr int64_t kElements = 65536;
  static constexpr int64_t kPixels = 96;
  // rows of the largest
  int64_t rows;
  int64_t per_image;
  int64_t count;

  explicit Strips(const ConvShape& shape) {
    const int64_t pixels = std::max(kPixels, kElements / std::max(shape.depth(), shape.k));
    rows = ceil_div(shape.p, ceil_div(shape.p, std::max<int64_t>(1, pixels / shape.q)));
    per_image = ceil_div(shape.p, rows);
    count = shape.n * per_image;
  }
  Strip operator()(const ConvShape& shape, int64_t i) const {
    const int64_t row = i % per_image * rows;
    return {i / per_image, row, std::min(rows, shape.p - row)};
  }
};

// Output row (or column) i reads input row i · stride + shift through this tap, for i from `begin`
// to `end`. The other outputs read padding.
struct Visible {
  int64_t shift;
  int64_t begin;
  int64_t end;
  Visible(int64_t tap, int64_t stride, int64_t padding, int64_t dilation, int64_t in, int64_t out)
      : shift(tap * dilation - padding),
        begin(std::clamp<int64_t>(ceil_div(std::max<int64_t>(0, -shift), stride), 0, out)),
        end(std::clamp<int64_t>(shift < in ? (in - 1 - shift) / stride + 1 : 0, begin, out)) {}
};

// to[i] = from[i * stride]. Loops with a constant stride are vectorised.
template <class T>
void copy_every(T* to, const T* from, int64_t n, int64_t stride) {
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i) to[i] = from[i];
  else if (stride == 2)
    for (int64_t i = 0; i < n; ++i) to[i] = from[2 * i];
  else
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
}
template <class T>
void add_every(T* to, const T* from, int64_t n, int64_t stride) {  // to[i * stride] += from[i]
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i) to[i] += from[i];
  else
    for (int64_t i = 0; i < n; ++i) to[i * stride] += from[i];
}

// Copies the pixels that one tap (r, s) reads from one plane [h, w], for the output rows [row, row
// + rows), into col [rows, q].
//
// If the output is as wide as the input and the stride is 1, rows have the same distance on both
// sides. The whole plane is then one run, whose first and last columns wrap around the edges and
// are overwritten afterwards. (Copying rows of 8 pixels one by one, as in the last stage of a CIFAR
// ResNet, would cost as much as the product that follows.)
template <class T>
void unfold_plane(const ConvShape& shape, int64_t r, int64_t s, int64_t row, int64_t rows, T* col,
                  const T* plane, T outside = T{0}) {
  const int64_t q = shape.q;
  const Visible y(r, shape.stride.h, shape.padding.h, shape.dilation.h, shape.h, shape.p);
  const Visible x(s, shape.stride.w, shape.padding.w, shape.dilation.w, shape.w, q);
  const int64_t begin = std::clamp(y.begin, row, row + rows);
  const int64_t end = std::clamp(y.end, begin, row + rows);
  T* const first = col + (begin - row) * q;
  T* const last = col + (end - row) * q;
  if (x.begin == x.end || begin == end) {
    std::fill(col, col + rows * q, outside);
    return;
  }
  std::fill(col, first, outside);
  if (q == shape.w && shape.stride == Pair(1)) {
    const T* const from = plane + (begin + y.shift) * shape.w + x.shift;
    std::memcpy(first + x.begin, from + x.begin,
                ((end - begin - 1) * q + x.end - x.begin) * sizeof(T));
  } else {
    for (int64_t i = begin; i < end; ++i)
      copy_every(
          col + (i - row) * q + x.begin,
          plane + (i * shape.stride.h + y.shift) * shape.w + x.begin * shape.stride.w + x.shift,
          x.end - x.begin, shape.stride.w);
  }
  for (T* to = first; to != last; to += q) {
    for (int64_t j = 0; j < x.begin; ++j) to[j] = outside;
    for (int64_t j = x.end; j < q; ++j) to[j] = outside;
  }
  std::fill(last, col + rows * q, outside);
}

// The adjoint: adds every element of col to the pixel from which it was copied. Clears the elements
// that stand for padding.
template <class T>
void fold_plane(const ConvShape& shape, int64_t r, int64_t s, int64_t row, int64_t rows, T* plane,
                T* col) {
  const int64_t q = shape.q;
  const Visible y(r, shape.stride.h, shape.padding.h, shape.dilation.h, shape.h, shape.p);
  const Visible x(s, shape.stride.w, shape.padding.w, shape.dilation.w, shape.w, q);
  const int64_t begin = std::clamp(y.begin, row, row + rows);
  const int64_t end = std::clamp(y.end, begin, row + rows);
  if (x.begin == x.end || begin == end) return;
  T* const first = col + (begin - row) * q;
  if (q == shape.w && shape.stride == Pair(1)) {
    for (T* to = first; to != col + (end - row) * q; to += q) {
      for (int64_t j = 0; j < x.begin; ++j) to[j] = T{0};
      for (int64_t j = x.end; j < q; ++j) to[j] = T{0};
    }
    add_every(plane + (begin + y.shift) * shape.w + x.shift + x.begin, first + x.begin,
              (end - begin - 1) * q + x.end - x.begin, 1);
  } else {
    for (int64_t i = begin; i < end; ++i)
      add_every(
          plane + (i * shape.stride.h + y.shift) * shape.w + x.begin * shape.stride.w + x.shift,
          col + (i - row) * q + x.begin, x.end - x.begin, shape.stride.w);
  }
}

// im2col fills col [channels · r · s, pixels] with the inputs of the filters from channels [first,
// first + channels) of x, counted over all groups, in one strip. col2im is the adjoint: it adds to
// dx, and overwrites col.
template <class T>
void im2col(const ConvShape& shape, const Strip& strip, int64_t first, int64_t channels, T* col,
            const T* x) {
  for (int64_t c = first; c < first + channels; ++c)
    for (int64_t tap = 0; tap < shape.r * shape.s; ++tap, col += strip.rows * shape.q)
      unfold_plane(shape, tap / shape.s, tap % shape.s, strip.row, strip.rows, col,
                   x + (strip.image * shape.groups * shape.c + c) * shape.h * shape.w);
}
template <class T>
void col2im(const ConvShape& shape, const Strip& strip, int64_t first, int64_t channels, T* dx,
            T* col) {
  for (int64_t c = first; c < first + channels; ++c)
    for (int64_t tap = 0; tap < shape.r * shape.s; ++tap, col += strip.rows * shape.q)
      fold_plane(shape, tap / shape.s, tap % shape.s, strip.row, strip.rows,
                 dx + (strip.image * shape.groups * shape.c + c) * shape.h * shape.w, col);
}

}  // namespace ringgrad::cpu
