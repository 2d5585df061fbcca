#include "ringgrad/core/cpu/pool2d_blocked.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/conv/vector.h"
#include "ringgrad/core/cpu/widen.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad {

namespace cpu {
namespace {

using conv::kLanes, conv::Vector, conv::load, conv::store;
using Integers = conv::UnalignedIntegers;

// The rows or columns of the image that output i of an axis reads.
struct Range {
  int64_t begin;
  int64_t end;
  int64_t size() const { return end - begin; }
};

// Sliding windows, clipped at the border. `area` counts the padding, too.
struct SlidingAxis {
  int64_t size;
  int64_t kernel;
  int64_t stride;
  int64_t padding;
  Range operator()(int64_t i) const {
    const int64_t first = i * stride - padding;
    return {std::max<int64_t>(0, first), std::min(size, first + kernel)};
  }
};
SlidingAxis sliding_rows(const Tensor& x, const Pool2dOptions& o) {
  return {x.shape()[2], o.kernel.h, o.stride.h > 0 ? o.stride.h : o.kernel.h, o.padding.h};
}
SlidingAxis sliding_columns(const Tensor& x, const Pool2dOptions& o) {
  return {x.shape()[3], o.kernel.w, o.stride.w > 0 ? o.stride.w : o.kernel.w, o.padding.w};
}
// Windows that divide the image into `parts`; see adaptive_avg_pool2d in core/kernels.h.
struct AdaptiveAxis {
  int64_t size;
  int64_t parts;
  Range operator()(int64_t i) const { return {i * size / parts, ceil_div((i + 1) * size, parts)}; }
};

// Calls body(x, y, rows, columns) for every vector of y. x and y are the offsets of its lanes in
// the first pixel of x's plane, and in y. start(x, n) is called first for each plane of x, which
// has n numbers.
template <class Axis, class Start, class Body>
void for_each_window(Stream stream, const Tensor& x, const Tensor& y, const Axis& rows,
                     const Axis& columns, Start&& start, Body&& body) {
  ASSERT(x.is_channel_blocked() && y.is_channel_blocked());
  const int64_t p = y.shape()[2];
  const int64_t q = y.shape()[3];
  const int64_t plane = x.shape()[2] * x.shape()[3] * kChannelBlock;
  parallel_for(stream, x.shape()[0] * ceil_div(x.shape()[1], kChannelBlock), grain(plane),
               [&](int64_t begin, int64_t end) {
                 for (int64_t block = begin; block < end; ++block) {
                   start(block * plane, plane);
                   for (int64_t i = 0; i < p; ++i)
                     for (int64_t j = 0; j < q; ++j)
                       for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes)
                         body(block * plane + lane,
                              ((block * p + i) * q + j) * kChannelBlock + lane, rows(i),
                              columns(j));
                 }
               });
}

// Calls body(pixel, offset) for the pixels of a window, in row order. `width` is the image's. 2 × 2
// pixels, the most common window, have no loops, which takes three quarters of the time.
template <class Body>
[[gnu::always_inline]] inline void for_each_pixel(Range rows, Range columns, int64_t width,
                                                  const Body& body) {
  if (rows.size() == 2 && columns.size() == 2) {
    const int64_t upper = rows.begin * width + columns.begin;
    const int64_t lower = upper + width;
    for (const int64_t pixel : {upper, upper + 1, lower, lower + 1})
      body(pixel, pixel * kChannelBlock);
    return;
  }
  for (int64_t h = rows.begin; h < rows.end; ++h)
    for (int64_t w = columns.begin; w < columns.end; ++w)
      body(h * width + w, (h * width + w) * kChannelBlock);
}

// The reciprocal of the divisor of the sum over a window.
struct WindowArea {
  bool count_padding;
  int64_t kernel;
  float operator()(Range rows, Range columns) const {
    return 1 / static_cast<float>(count_padding ? kernel : rows.size() * columns.size());
  }
};

template <class T, class Axis>
void average(Stream stream, const Tensor& y, const Tensor& x, const Axis& rows, const Axis& columns,
             WindowArea scale) {
  const T* const from = x.data<T>();
  T* const to = y.data<T>();
  for_each_window(
      stream, x, y, rows, columns, [](int64_t, int64_t) {},
      [=, width = x.shape()[3]](int64_t plane, int64_t at, Range r, Range c) {
        Vector sum{};
        // The sum is taken row by row, because one chain of additions would be too long.
        for (int64_t h = r.begin; h < r.end; ++h) {
          Vector row{};
          for_each_pixel({h, h + 1}, c, width,
                         [&](int64_t, int64_t offset) { row += load(from + plane + offset); });
          sum += row;
        }
        store(to + at, sum * scale(r, c));
      });
}

// In bfloat16, a pixel that several windows share is rounded after each of them.
template <class T, class Axis>
void spread(Stream stream, const Tensor& dx, const Tensor& dy, const Axis& rows,
            const Axis& columns, WindowArea scale) {
  T* const to = dx.data<T>();
  const T* const from = dy.data<T>();
  for_each_window(
      stream, dx, dy, rows, columns,
      [to](int64_t first, int64_t n) { std::fill_n(to + first, n, T{}); },
      [=, width = dx.shape()[3]](int64_t plane, int64_t at, Range r, Range c) {
        const Vector share = load(from + at) * scale(r, c);
        for_each_pixel(r, c, width, [&](int64_t, int64_t offset) {
          store(to + plane + offset, load(to + plane + offset) + share);
        });
      });
}

AdaptiveAxis adaptive(const Tensor& x, const Tensor& y, int d) {
  return {x.shape()[d], y.shape()[d]};
}

}  // namespace

void max_pool2d_blocked(Stream stream, const Tensor& y, const Tensor& index, const Tensor& x,
                        const Pool2dOptions& options) {
  visit_blocked(x, [&]<class T>() {
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    int32_t* const places = index.data<int32_t>();
    for_each_window(
        stream, x, y, sliding_rows(x, options), sliding_columns(x, options),
        [](int64_t, int64_t) {},
        [=, width = x.shape()[3]](int64_t plane, int64_t at, Range rows, Range columns) {
          const int64_t first = rows.begin * width + columns.begin;
          Vector best = load(from + plane + first * kChannelBlock);
          Integers place = Integers{} + static_cast<int32_t>(first);
          for_each_pixel(rows, columns, width, [&](int64_t pixel, int64_t offset) {
            const Vector v = load(from + plane + offset);
            // Takes the value if it is larger, or the first NaN.
            const auto better = (v > best) | ((v != v) & (best == best));
            best = better ? v : best;
            place = better ? Integers{} + static_cast<int32_t>(pixel) : place;
          });
          store(to + at, best);
          *reinterpret_cast<Integers*>(places + at) = place;
        });
  });
}

// Every pixel of a window takes dy if it was the maximum. No scatter is needed.
void max_pool2d_backward_blocked(Stream stream, const Tensor& dx, const Tensor& dy,
                                 const Tensor& index, const Pool2dOptions& options) {
  visit_blocked(dx, [&]<class T>() {
    T* const to = dx.data<T>();
    const T* const from = dy.data<T>();
    const int32_t* const places = index.data<int32_t>();
    for_each_window(
        stream, dx, dy, sliding_rows(dx, options), sliding_columns(dx, options),
        [to](int64_t first, int64_t n) { std::fill_n(to + first, n, T{}); },
        [=, width = dx.shape()[3]](int64_t plane, int64_t at, Range rows, Range columns) {
          const Vector grad = load(from + at);
          const Integers place = *reinterpret_cast<const Integers*>(places + at);
          for_each_pixel(rows, columns, width, [&](int64_t pixel, int64_t offset) {
            const Vector share = place == static_cast<int32_t>(pixel) ? grad : Vector{};
            store(to + plane + offset, load(to + plane + offset) + share);
          });
        });
  });
}

void avg_pool2d_blocked(Stream stream, const Tensor& y, const Tensor& x,
                        const Pool2dOptions& options) {
  const WindowArea area{options.count_padding, options.kernel.h * options.kernel.w};
  visit_blocked(x, [&]<class T>() {
    average<T>(stream, y, x, sliding_rows(x, options), sliding_columns(x, options), area);
  });
}

void avg_pool2d_backward_blocked(Stream stream, const Tensor& dx, const Tensor& dy,
                                 const Pool2dOptions& options) {
  const WindowArea area{options.count_padding, options.kernel.h * options.kernel.w};
  visit_blocked(dx, [&]<class T>() {
    spread<T>(stream, dx, dy, sliding_rows(dx, options), sliding_columns(dx, options), area);
  });
}

void adaptive_avg_pool2d_blocked(Stream stream, const Tensor& y, const Tensor& x) {
  visit_blocked(x, [&]<class T>() {
    average<T>(stream, y, x, adaptive(x, y, 2), adaptive(x, y, 3), {false, 0});
  });
}

void adaptive_avg_pool2d_backward_blocked(Stream stream, const Tensor& dx, const Tensor& dy) {
  visit_blocked(dx, [&]<class T>() {
    spread<T>(stream, dx, dy, adaptive(dx, dy, 2), adaptive(dx, dy, 3), {false, 0});
  });
}

}  // namespace cpu
}  // namespace ringgrad
