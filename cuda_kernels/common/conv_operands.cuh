// A convolution and its two gradients as matrix products (implicit GEMM): what their operands and results mean.
//
//             M (rows)           N (columns)         K (summed over)    a         b
//   forward   output pixels      filters             taps × channels    x         w
//   input     input pixels       channels            taps × filters     dy        w
//   weight    filters            taps × channels     output pixels      dy        x
//
// Pixels are (n, p, q), taps (r, s); channels (or filters) are always the fastest, so that neighbouring elements are
// neighbours in NHWC and KRSC memory. The batch of the product is the group. Indices fit 32 bits: see conv2d.cu.
#pragma once

#include "core/geometry.h"
#include "cuda_kernels/common/image.cuh"

namespace ringgrad::cuda {

struct ConvGeometry {
  Image x, w, y;  // w as an image: N = filters, C = channels of a group, H × W = taps
  int stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
  int channels, filters;  // of one group

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
        filters(static_cast<int>(w.shape()[0] / o.groups)) {}
};

// (n, h, w) of pixel number i of an image.
struct Pixel {
  int n, h, w;

  Pixel() = default;
  __device__ __forceinline__ Pixel(const Image& image, int64_t i) {
    const auto width = static_cast<unsigned>(image.W), height = static_cast<unsigned>(image.H);
    const auto row = static_cast<unsigned>(i) / width;
    w = static_cast<int>(static_cast<unsigned>(i) % width);
    h = static_cast<int>(row % height);
    n = static_cast<int>(row / height);
  }
};
// (r, s, c) of tap × channel number k.
struct Tap {
  int r, s, c;

  Tap() = default;
  __device__ __forceinline__ Tap(const Image& weight, int channels, int64_t k) {
    const auto tap = static_cast<unsigned>(k) / static_cast<unsigned>(channels);
    c = static_cast<int>(static_cast<unsigned>(k) % static_cast<unsigned>(channels));
    s = static_cast<int>(tap % static_cast<unsigned>(weight.W));
    r = static_cast<int>(tap / static_cast<unsigned>(weight.W));
  }
};

// x where output pixel (n, p, q) sees it through tap (r, s); nullptr on the padding.
template <class T>
__device__ __forceinline__ const T* seen(const ConvGeometry& g, const T* x, int64_t channel, Pixel pixel, Tap tap) {
  const int h = pixel.h * g.stride_h + tap.r * g.dilation_h - g.padding_h;
  const int w = pixel.w * g.stride_w + tap.s * g.dilation_w - g.padding_w;
  const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(g.x.H) &&
                      static_cast<unsigned>(w) < static_cast<unsigned>(g.x.W);
  return inside ? x + g.x.at(pixel.n, channel, h, w) : nullptr;
}

// A row that carries its group; its index may be beyond the matrix.
template <class Index>
struct GroupRow {
  Index index;
  int group;
  bool inside;
};

// ---- forward ------------------------------------------------------------------------------------------------------

template <class T>
struct SeenPixels {                        // a [output pixels, taps × channels] = x
  static constexpr bool kInChunks = true;  // of tensor cores; see in_chunks() in conv2d.cu
  using Value = T;
  using Row = GroupRow<Pixel>;
  using Term = Tap;
  ConvGeometry g;
  const T* data;
  int64_t size;

  __device__ __forceinline__ Row row(int64_t group, int64_t i) const {
    return {Pixel(g.y, i < size ? i : 0), static_cast<int>(group), i < size};
  }
  __device__ __forceinline__ Term term(int64_t k) const { return Tap(g.w, g.channels, k); }
  __device__ __forceinline__ const T* address(const Row& row, const Term& tap) const {
    return row.inside ? seen(g, data, int64_t{row.group} * g.channels + tap.c, row.index, tap) : nullptr;
  }
};

template <class T>
struct Filters {  // b [filters, taps × channels] = w
  static constexpr bool kInChunks = true;
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
    const Tap tap(g.w, g.channels, k);
    return g.w.at(0, tap.c, tap.r, tap.s);
  }
  __device__ __forceinline__ const T* address(Row row, Term term) const { return row ? row + term : nullptr; }
};

template <class T>
struct OutputStore {  // y, with bias per filter unless nullptr
  ConvGeometry g;
  T* y;
  const Compute<T>* bias;

  __device__ __forceinline__ void operator()(int64_t group, int, int64_t m, int64_t n, Compute<T> value) const {
    const Pixel pixel(g.y, m);
    const int64_t filter = group * g.filters + n;
    y[g.y.at(pixel.n, filter, pixel.h, pixel.w)] = narrow<T>(bias ? value + bias[filter] : value);
  }
};

// ---- gradient of the input ----------------------------------------------------------------------------------------

template <class T>
struct SeeingPixels {  // a [input pixels, taps × filters] = dy
  static constexpr bool kInChunks = true;
  using Value = T;
  using Row = GroupRow<Pixel>;
  using Term = Tap;
  ConvGeometry g;
  const T* data;
  int64_t size;

  __device__ __forceinline__ Row row(int64_t group, int64_t i) const {
    return {Pixel(g.x, i < size ? i : 0), static_cast<int>(group), i < size};
  }
  __device__ __forceinline__ Term term(int64_t k) const { return Tap(g.w, g.filters, k); }
  // The output pixel that sees this one through the tap, if there is one: h = p stride + r dilation - padding.
  __device__ __forceinline__ const T* address(const Row& row, const Term& tap) const {
    const int h = row.index.h + g.padding_h - tap.r * g.dilation_h,
              w = row.index.w + g.padding_w - tap.s * g.dilation_w;
    if (!row.inside || h < 0 || w < 0 || h % g.stride_h != 0 || w % g.stride_w != 0) return nullptr;
    const int p = h / g.stride_h, q = w / g.stride_w;
    return p < g.y.H && q < g.y.W ? data + g.y.at(row.index.n, int64_t{row.group} * g.filters + tap.c, p, q) : nullptr;
  }
};

template <class T>
struct TransposedFilters {  // b [channels, taps × filters] = w
  static constexpr bool kInChunks = true;
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
    const Tap tap(g.w, g.filters, k);
    return g.w.at(tap.c, 0, tap.r, tap.s);
  }
  __device__ __forceinline__ const T* address(Row row, Term term) const { return row ? row + term : nullptr; }
};

template <class T>
struct InputStore {  // dx
  ConvGeometry g;
  T* dx;

  __device__ __forceinline__ void operator()(int64_t group, int, int64_t m, int64_t n, Compute<T> value) const {
    const Pixel pixel(g.x, m);
    dx[g.x.at(pixel.n, group * g.channels + n, pixel.h, pixel.w)] = narrow<T>(value);
  }
};

// ---- gradient of the weight ---------------------------------------------------------------------------------------

template <class T>
struct OutputGradients {  // a [filters, output pixels] = dy
  static constexpr bool kInChunks = true;
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
    const Pixel pixel(g.y, k);
    return g.y.at(pixel.n, 0, pixel.h, pixel.w);
  }
  __device__ __forceinline__ const T* address(Row row, Term term) const { return row ? row + term : nullptr; }
};

template <class T>
struct SeenTaps {  // b [taps × channels, output pixels] = x
  static constexpr bool kInChunks = true;
  using Value = T;
  using Row = GroupRow<Tap>;
  using Term = Pixel;
  ConvGeometry g;
  const T* data;
  int64_t size;

  __device__ __forceinline__ Row row(int64_t group, int64_t i) const {
    return {Tap(g.w, g.channels, i < size ? i : 0), static_cast<int>(group), i < size};
  }
  __device__ __forceinline__ Term term(int64_t k) const { return Pixel(g.y, k); }
  __device__ __forceinline__ const T* address(const Row& row, const Term& pixel) const {
    return row.inside ? seen(g, data, int64_t{row.group} * g.channels + row.index.c, pixel, row.index) : nullptr;
  }
};

template <class A>
struct PartialStore {  // [split, group, filter, tap × channel], to be added up over the splits
  A* partials;
  int64_t groups, M, N;

  __device__ __forceinline__ void operator()(int64_t group, int split, int64_t m, int64_t n, A value) const {
    partials[((split * groups + group) * M + m) * N + n] = value;
  }
};

}  // namespace ringgrad::cuda
