// A convolution and its two gradients as matrix products (implicit GEMM), by the meaning of their
// operands and results.
//
//             M (rows)           N (columns)         K (summed over)    a         b
//   forward   output pixels      filters             taps × channels    x         w
//   input     input pixels       channels            taps × filters     dy        w
//   weight    filters            taps × channels     output pixels      dy        x
//
// Pixels are (n, p, q), and taps (r, s). Channels (or filters) are always the fastest, so
// neighbouring elements are neighbours in NHWC and KRSC memory. The batch of the product is the
// group. Indices fit 32 bits: see conv2d.cu.
//
// An address is computed for every 16 bytes, so its cost must be small against the multiplications
// of 16 bytes. Therefore the contributions of row and term are kept as offsets in memory, which
// only need to be added.
#pragma once

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/common/tensor_core_gemm.cuh"

namespace ringgrad::cuda {

struct ConvGeometry {
  // w as an image: N = filters, C = channels of a group, H × W = taps
  Image x;
  Image w;
  Image y;
  int stride_h;
  int stride_w;
  int padding_h;
  int padding_w;
  int dilation_h;
  int dilation_w;
  // the numbers in one group
  int channels;
  int filters;
  Divider by_channels;
  Divider by_filters;
  Divider by_tap_width;
  Divider by_x_height;
  Divider by_x_width;
  Divider by_y_height;
  Divider by_y_width;
  Divider by_stride_h;
  Divider by_stride_w;

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

// Splits the number i of a pixel into (n, h, w), for an image of that height and width.
struct Pixel {
  int n;
  int h;
  int w;

  __device__ __forceinline__ Pixel(Divider height, Divider width, int64_t i) {
    const auto [row, column] = width(static_cast<unsigned>(i));
    const auto [image, row_of_image] = height(row);
    n = static_cast<int>(image);
    h = static_cast<int>(row_of_image);
    w = static_cast<int>(column);
  }
};
__device__ __forceinline__ Pixel x_pixel(const ConvGeometry& g, int64_t i) {
  return Pixel(g.by_x_height, g.by_x_width, i);
}
__device__ __forceinline__ Pixel y_pixel(const ConvGeometry& g, int64_t i) {
  return Pixel(g.by_y_height, g.by_y_width, i);
}

// Splits the number k of a tap × channel, or tap × filter, into (r, s, c).
struct Tap {
  int r;
  int s;
  int c;

  __device__ __forceinline__ Tap(const ConvGeometry& g, Divider channels, int64_t k) {
    const auto [tap, channel] = channels(static_cast<unsigned>(k));
    const auto [row, column] = g.by_tap_width(tap);
    r = static_cast<int>(row);
    s = static_cast<int>(column);
    c = static_cast<int>(channel);
  }
};

// The contribution of a pixel, or of a tap, to a position in an image: a part of its coordinates
// and of its offset in memory.
struct Part {
  int h;
  int w;
  int64_t offset;
};
constexpr int kNowhere = -(1 << 30);  // a coordinate that no other part brings back into the image

// ---- x, forward and for the weight --------------------------------------------------------------

// The matrix of x's patches, which im2col would build: [output pixels, taps × channels] or,
// transposed, [taps × channels, output pixels].
template <class T, bool kTransposed>
struct PatchMatrix {
  using Value = T;
  using Row = Part;
  using Term = Part;
  ConvGeometry g;
  const T* data;
  int64_t size;

  // corner() is the beginning of the patch of output pixel i. within() is the distance from there
  // to tap × channel number k.
  __device__ __forceinline__ Part corner(int64_t i) const {
    const Pixel y = y_pixel(g, i);
    const int h = y.h * g.stride_h - g.padding_h;
    const int w = y.w * g.stride_w - g.padding_w;
    return {h, w, g.x.at(y.n, 0, h, w)};
  }
  __device__ __forceinline__ Part within(int64_t k) const {
    const Tap tap(g, g.by_channels, k);
    const int h = tap.r * g.dilation_h;
    const int w = tap.s * g.dilation_w;
    return {h, w, g.x.at(0, tap.c, h, w)};
  }

  __device__ __forceinline__ Row row(int64_t group, int64_t i) const {
    if (i >= size) return {kNowhere, kNowhere, 0};
    Part row = kTransposed ? within(i) : corner(i);
    row.offset += group * g.channels * g.x.c_stride;
    return row;
  }
  __device__ __forceinline__ Term term(int64_t k) const {
    return kTransposed ? corner(k) : within(k);
  }
  __device__ __forceinline__ const T* address(const Row& row, const Term& term) const {
    const bool inside = static_cast<unsigned>(row.h + term.h) < static_cast<unsigned>(g.x.H) &&
                        static_cast<unsigned>(row.w + term.w) < static_cast<unsigned>(g.x.W);
    return inside ? data + (row.offset + term.offset) : nullptr;  // nullptr on the padding
  }
};

// ---- dy, for the input and for the weight -------------------------------------------------------

// The matrix of dy's patches [input pixels, taps × filters]: the output pixels to which an input
// pixel contributes.
template <class T>
struct GradientPatchMatrix {
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
  // Returns the output pixel that reads this pixel through the tap, if there is one: h = p stride +
  // r dilation - padding.
  __device__ __forceinline__ const T* address(const Row& row, const Term& term) const {
    const int h = row.h + term.h;
    const int w = row.w + term.w;
    if (h < 0 || w < 0) return nullptr;
    const auto [p, h_left] = g.by_stride_h(static_cast<unsigned>(h));
    const auto [q, w_left] = g.by_stride_w(static_cast<unsigned>(w));
    if (h_left != 0 || w_left != 0 || p >= g.y.H || q >= g.y.W) return nullptr;
    return data + (row.offset + term.offset + g.y.at(0, 0, p, q));
  }
};

// dy as a matrix [filters, output pixels].
template <class T>
struct GradientMatrix : InMemory<T> {
  ConvGeometry g;
  const T* data;
  int64_t size;

  __device__ __forceinline__ const T* row(int64_t group, int64_t i) const {
    return i < size ? data + (group * g.filters + i) * g.y.c_stride : nullptr;
  }
  __device__ __forceinline__ int64_t term(int64_t k) const {
    const Pixel pixel = y_pixel(g, k);
    return g.y.at(pixel.n, 0, pixel.h, pixel.w);
  }
};

// ---- w, forward and for the input ---------------------------------------------------------------

// w as a matrix [filters, taps × channels] or, transposed, [channels, taps × filters].
template <class T, bool kTransposed>
struct WeightMatrix : InMemory<T> {
  ConvGeometry g;
  const T* data;
  int64_t size;

  __device__ __forceinline__ const T* row(int64_t group, int64_t i) const {
    const int64_t stride = kTransposed ? g.w.c_stride : g.w.n_stride;
    return i < size ? data + group * g.filters * g.w.n_stride + i * stride : nullptr;
  }
  __device__ __forceinline__ int64_t term(int64_t k) const {
    const Tap tap(g, kTransposed ? g.by_filters : g.by_channels, k);
    return kTransposed ? g.w.at(tap.c, 0, tap.r, tap.s) : g.w.at(0, tap.c, tap.r, tap.s);
  }
};

// ---- results ------------------------------------------------------------------------------------

// Writes y or dx: [pixels, channels of the group], with bias per channel unless that is nullptr.
template <class T>
struct ImageStore {
  Image image;
  Divider by_height;
  Divider by_width;
  int channels;  // in one group
  T* data;
  const Compute<T>* bias;

  __device__ __forceinline__ int64_t offset(int64_t group, int64_t m, int64_t n) const {
    const Pixel pixel(by_height, by_width, m);
    return image.at(pixel.n, group * channels + n, pixel.h, pixel.w);
  }
  __device__ __forceinline__ T* at(int64_t group, int, int64_t m, int64_t n) const {
    return data + offset(group, m, n);
  }
  __device__ __forceinline__ T result(int64_t group, int64_t n, Compute<T> value) const {
    return narrow<T>(bias ? value + bias[group * channels + n] : value);
  }
};

// The same, plus images `added` with the same layout, unless that is nullptr. It is a separate
// store, because y's loop would have ten more instructions.
template <class T>
struct AddingImageStore : ImageStore<T> {
  const T* added;

  __device__ __forceinline__ const T* addend(int64_t group, int64_t m, int64_t n) const {
    return added ? added + this->offset(group, m, n) : nullptr;
  }
};

// Writes dw in parts [split, group, filter, tap × channel], to be summed over the splits.
template <class A>
struct PartialStore {
  A* partials;
  int64_t groups;
  int64_t M;
  int64_t N;

  __device__ __forceinline__ A* at(int64_t group, int split, int64_t m, int64_t n) const {
    return partials + ((split * groups + group) * M + m) * N + n;
  }
  __device__ __forceinline__ A result(int64_t, int64_t, A value) const { return value; }
};

// ---- on tensor cores ----------------------------------------------------------------------------

// conv2d_tensor_cores.cu compiles these instances, because compiling them takes as long as
// compiling the rest of conv2d.cu.
#define RINGGRAD_CONV_ON_TENSOR_CORES(storage, T)                                            \
  storage template void tensor_core_gemm<true, true, true>(                                  \
      Stream, const GemmShape&, const PatchMatrix<T, false>&, const WeightMatrix<T, false>&, \
      const ImageStore<T>&);                                                                 \
  storage template void tensor_core_gemm<true, false, true>(                                 \
      Stream, const GemmShape&, const GradientPatchMatrix<T>&, const WeightMatrix<T, true>&, \
      const AddingImageStore<T>&);                                                           \
  storage template void tensor_core_gemm<false, false, true>(                                \
      Stream, const GemmShape&, const GradientMatrix<T>&, const PatchMatrix<T, true>&,       \
      const PartialStore<float>&);

RINGGRAD_CONV_ON_TENSOR_CORES(extern, __half)
RINGGRAD_CONV_ON_TENSOR_CORES(extern, __nv_bfloat16)

}  // namespace ringgrad::cuda
