// A convolution and its two gradients as matrix products (implicit GEMM): what their operands and results mean.
//
//             M (rows)           N (columns)         K (summed over)    a         b
//   forward   output pixels      filters             taps × channels    x         w
//   input     input pixels       channels            taps × filters     dy        w
//   weight    filters            taps × channels     output pixels      dy        x
//
// Pixels are (n, p, q), taps (r, s); channels (or filters) are always the fastest, so that neighbouring elements are
// neighbours in NHWC and KRSC memory. The batch of the product is the group. Indices fit 32 bits: see conv2d.cu.
//
// An address is worked out for every 16 bytes, so what it takes must not be much beside 16 bytes' multiplications: what
// row and term say is kept as offsets in memory, which only need to be added.
#pragma once

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"

namespace ringgrad::cuda {

struct ConvGeometry {
  Image x, w, y;  // w as an image: N = filters, C = channels of a group, H × W = taps
  int stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
  int channels, filters;  // of one group
  Divider by_channels, by_filters, by_tap_width, by_x_height, by_x_width, by_y_height, by_y_width;
  Divider by_stride_h, by_stride_w;

  ConvGeometry(const Tensor& x, const Tensor& w, const Tensor& y, const Conv2dOptions& o)
      : x(x),
        w(w),
        y(y),
        stride_h(static_cast<int>(o.stride.h)),
        stride_w(static_cast<int>(o.stride.w)),
        padding_h(static_cast<int>(o.padding.h)),
        padding_w(static_cast<int>(o.padding.w)),
        dilation_h(static_cast<int>(o.dilation.h)),
        dilation_w(static_cast<int>(o.dilation.w)),
        channels(static_cast<int>(w.shape()[1])),
        filters(static_cast<int>(w.shape()[0] / o.groups)),
        by_channels(channels),
        by_filters(filters),
        by_tap_width(w.shape()[3]),
        by_x_height(x.shape()[2]),
        by_x_width(x.shape()[3]),
        by_y_height(y.shape()[2]),
        by_y_width(y.shape()[3]),
        by_stride_h(o.stride.h),
        by_stride_w(o.stride.w) {}
};

// (n, h, w) of pixel number i of an image of that height and width.
struct Pixel {
  int n, h, w;

  __device__ __forceinline__ Pixel(Divider height, Divider width, int64_t i) {
    const auto [row, column] = width(static_cast<unsigned>(i));
    const auto [image, row_of_image] = height(row);
    n = static_cast<int>(image), h = static_cast<int>(row_of_image), w = static_cast<int>(column);
  }
};
__device__ __forceinline__ Pixel x_pixel(const ConvGeometry& g, int64_t i) {
  return Pixel(g.by_x_height, g.by_x_width, i);
}
__device__ __forceinline__ Pixel y_pixel(const ConvGeometry& g, int64_t i) {
  return Pixel(g.by_y_height, g.by_y_width, i);
}

// (r, s, c) of tap × channel number k, or of tap × filter number k.
struct Tap {
  int r, s, c;

  __device__ __forceinline__ Tap(const ConvGeometry& g, Divider channels, int64_t k) {
    const auto [tap, channel] = channels(static_cast<unsigned>(k));
    const auto [row, column] = g.by_tap_width(tap);
    r = static_cast<int>(row), s = static_cast<int>(column), c = static_cast<int>(channel);
  }
};

// What a pixel, or a tap, contributes to a place in an image: a part of its coordinates and of its offset in memory.
struct Part {
  int h, w;
  int64_t offset;
};
constexpr int kNowhere = -(1 << 30);  // a coordinate that no other part brings back into the image

// Of x: where the window of output pixel number i begins, and how far from there tap × channel number k is.
__device__ __forceinline__ Part window(const ConvGeometry& g, int64_t i) {
  const Pixel y = y_pixel(g, i);
  const int h = y.h * g.stride_h - g.padding_h, w = y.w * g.stride_w - g.padding_w;
  return {h, w, g.x.at(y.n, 0, h, w)};
}
__device__ __forceinline__ Part within_window(const ConvGeometry& g, int64_t k) {
  const Tap tap(g, g.by_channels, k);
  const int h = tap.r * g.dilation_h, w = tap.s * g.dilation_w;
  return {h, w, g.x.at(0, tap.c, h, w)};
}
// x at the sum of the two; nullptr on the padding.
template <class T>
__device__ __forceinline__ const T* seen(const ConvGeometry& g, const T* x, const Part& a, const Part& b) {
  const bool inside = static_cast<unsigned>(a.h + b.h) < static_cast<unsigned>(g.x.H) &&
                      static_cast<unsigned>(a.w + b.w) < static_cast<unsigned>(g.x.W);
  return inside ? x + (a.offset + b.offset) : nullptr;
}

// ---- forward ------------------------------------------------------------------------------------------------------

template <class T>
struct SeenPixels {  // a [output pixels, taps × channels] = x
  using Value = T;
  using Row = Part;
  using Term = Part;
  ConvGeometry g;
  const T* data;
  int64_t size;

  __device__ __forceinline__ Row row(int64_t group, int64_t i) const {
    if (i >= size) return {kNowhere, kNowhere, 0};
    Part row = window(g, i);
    row.offset += group * g.channels * g.x.c_stride;
    return row;
  }
  __device__ __forceinline__ Term term(int64_t k) const { return within_window(g, k); }
  __device__ __forceinline__ const T* address(const Row& row, const Term& term) const {
    return seen(g, data, row, term);
  }
};

template <class T>
struct Filters {  // b [filters, taps × channels] = w
  using Value = T;
  using Row = const T*;
  using Term = int64_t;
  ConvGeometry g;
  const T* data;
  int64_t size;

  __device__ __forceinline__ Row row(int64_t group, int64_t i) const {
    return i < size ? data + (group * g.filters + i) * g.w.n_stride : nullptr;
  }
  __device__ __forceinline__ Term term(int64_t k) const {
    const Tap tap(g, g.by_channels, k);
    return g.w.at(0, tap.c, tap.r, tap.s);
  }
  __device__ __forceinline__ const T* address(Row row, Term term) const { return row ? row + term : nullptr; }
};

template <class T>
struct OutputStore {  // y, with bias per filter unless nullptr
  ConvGeometry g;
  T* y;
  const Compute<T>* bias;

  __device__ __forceinline__ T* at(int64_t group, int, int64_t m, int64_t n) const {
    const Pixel pixel = y_pixel(g, m);
    return y + g.y.at(pixel.n, group * g.filters + n, pixel.h, pixel.w);
  }
  __device__ __forceinline__ T result(int64_t group, int64_t n, Compute<T> value) const {
    return narrow<T>(bias ? value + bias[group * g.filters + n] : value);
  }
};

// ---- gradient of the input ----------------------------------------------------------------------------------------

template <class T>
struct SeeingPixels {  // a [input pixels, taps × filters] = dy
  using Value = T;
  using Row = Part;   // the offset is the image's
  using Term = Part;  // and the filter's
  ConvGeometry g;
  const T* data;
  int64_t size;

  __device__ __forceinline__ Row row(int64_t group, int64_t i) const {
    if (i >= size) return {kNowhere, kNowhere, 0};
    const Pixel x = x_pixel(g, i);
    return {x.h + g.padding_h, x.w + g.padding_w, g.y.at(x.n, group * g.filters, 0, 0)};
  }
  __device__ __forceinline__ Term term(int64_t k) const {
    const Tap tap(g, g.by_filters, k);
    return {-tap.r * g.dilation_h, -tap.s * g.dilation_w, g.y.at(0, tap.c, 0, 0)};
  }
  // The output pixel that sees this one through the tap, if there is one: h = p stride + r dilation - padding.
  __device__ __forceinline__ const T* address(const Row& row, const Term& term) const {
    const int h = row.h + term.h, w = row.w + term.w;
    if (h < 0 || w < 0) return nullptr;
    const auto [p, h_left] = g.by_stride_h(static_cast<unsigned>(h));
    const auto [q, w_left] = g.by_stride_w(static_cast<unsigned>(w));
    if (h_left != 0 || w_left != 0 || p >= g.y.H || q >= g.y.W) return nullptr;
    return data + (row.offset + term.offset + g.y.at(0, 0, p, q));
  }
};

template <class T>
struct TransposedFilters {  // b [channels, taps × filters] = w
  using Value = T;
  using Row = const T*;
  using Term = int64_t;
  ConvGeometry g;
  const T* data;
  int64_t size;

  __device__ __forceinline__ Row row(int64_t group, int64_t i) const {
    return i < size ? data + group * g.filters * g.w.n_stride + i * g.w.c_stride : nullptr;
  }
  __device__ __forceinline__ Term term(int64_t k) const {
    const Tap tap(g, g.by_filters, k);
    return g.w.at(tap.c, 0, tap.r, tap.s);
  }
  __device__ __forceinline__ const T* address(Row row, Term term) const { return row ? row + term : nullptr; }
};

template <class T>
struct InputStore {  // dx
  ConvGeometry g;
  T* dx;

  __device__ __forceinline__ T* at(int64_t group, int, int64_t m, int64_t n) const {
    const Pixel pixel = x_pixel(g, m);
    return dx + g.x.at(pixel.n, group * g.channels + n, pixel.h, pixel.w);
  }
  __device__ __forceinline__ T result(int64_t, int64_t, Compute<T> value) const { return narrow<T>(value); }
};

// ---- gradient of the weight ---------------------------------------------------------------------------------------

template <class T>
struct OutputGradients {  // a [filters, output pixels] = dy
  using Value = T;
  using Row = const T*;
  using Term = int64_t;
  ConvGeometry g;
  const T* data;
  int64_t size;

  __device__ __forceinline__ Row row(int64_t group, int64_t i) const {
    return i < size ? data + (group * g.filters + i) * g.y.c_stride : nullptr;
  }
  __device__ __forceinline__ Term term(int64_t k) const {
    const Pixel pixel = y_pixel(g, k);
    return g.y.at(pixel.n, 0, pixel.h, pixel.w);
  }
  __device__ __forceinline__ const T* address(Row row, Term term) const { return row ? row + term : nullptr; }
};

template <class T>
struct SeenTaps {  // b [taps × channels, output pixels] = x
  using Value = T;
  using Row = Part;
  using Term = Part;
  ConvGeometry g;
  const T* data;
  int64_t size;

  __device__ __forceinline__ Row row(int64_t group, int64_t i) const {
    if (i >= size) return {kNowhere, kNowhere, 0};
    Part row = within_window(g, i);
    row.offset += group * g.channels * g.x.c_stride;
    return row;
  }
  __device__ __forceinline__ Term term(int64_t k) const { return window(g, k); }
  __device__ __forceinline__ const T* address(const Row& row, const Term& term) const {
    return seen(g, data, row, term);
  }
};

template <class A>
struct PartialStore {  // [split, group, filter, tap × channel], to be added up over the splits
  A* partials;
  int64_t groups, M, N;

  __device__ __forceinline__ A* at(int64_t group, int split, int64_t m, int64_t n) const {
    return partials + ((split * groups + group) * M + m) * N + n;
  }
  __device__ __forceinline__ A result(int64_t, int64_t, A value) const { return value; }
};

}  // namespace ringgrad::cuda
