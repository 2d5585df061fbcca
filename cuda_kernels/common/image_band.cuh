// Images in shared memory, for convolutions of few channels: one block for each image, which lies
// there with a border of zeros. conv2d_shared_image.cu and conv2d_shared_image_weight.cu read it
// there once for each tap. A tap only adds a number to an address, so nothing is gathered again.
//
// [row][column][channel]; 16 bytes follow each pixel, so that 8 neighbours are in different banks.
// An image with too little room is divided into bands of rows.
#pragma once

#include "ringgrad/core/kernels/conv_plan.h"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/common/tensor_core_gemm.cuh"

namespace ringgrad::cuda {

// Two blocks of this size share a multiprocessor of Hopper; one fits any card from sm_80 on.
inline constexpr size_t kMostShared = 99 * 1024;
inline constexpr int64_t kMostBands = 4;  // of an image; else too many rows would be loaded twice

// A band of rows of an NHWC image, and how it lies in shared memory.
struct Band {
  int H;
  int W;
  int channels;
  int padding;        // columns of zeros on either side
  int rows;           // that lie in shared memory
  Divider by_chunks;  // divides by the chunks of a pixel
  Divider by_width;   // and by the pixels of a row

  Band(const Tensor& x, int64_t padding, int64_t rows)
      : H(static_cast<int>(x.shape()[2])),
        W(static_cast<int>(x.shape()[3])),
        channels(static_cast<int>(x.shape()[1])),
        padding(static_cast<int>(padding)),
        rows(static_cast<int>(rows)),
        by_chunks(x.shape()[1] / kChunk),
        by_width(x.shape()[3] + 2 * padding) {}

  __host__ __device__ int width() const { return W + 2 * padding; }
  __host__ __device__ int pitch() const { return channels + kChunk; }
  __host__ __device__ int elements() const { return rows * width() * pitch(); }

  // Starts copying the rows from `first` on. What is outside the image becomes zero.
  template <class T>
  __device__ __forceinline__ void load(T* shared, const T* images, int64_t image, int first) const {
    const T* const from = images + image * H * W * channels;
    const auto chunks = static_cast<unsigned>(rows * width() * (channels / kChunk));
    for (unsigned e = threadIdx.x; e < chunks; e += blockDim.x) {
      const auto [pixel, chunk] = by_chunks(e);
      const auto [row, column] = by_width(pixel);
      const int h = first + static_cast<int>(row);
      const int w = static_cast<int>(column) - padding;
      const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(H) &&
                          static_cast<unsigned>(w) < static_cast<unsigned>(W);
      copy_16_async(shared + pixel * pitch() + chunk * kChunk,
                    inside ? from + (h * W + w) * channels + chunk * kChunk : from,
                    inside ? kVectorBytes : 0);
    }
  }
};

inline int as_int(int64_t n) { return static_cast<int>(n); }
inline int64_t tiles_of(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }

// ---- the division of images ---------------------------------------------------------------------

// dw: a warp sums the products of 16 filters and a row of taps. Where fewer such units exist than
// warps, this many warps share each.
inline constexpr int kWeightWarps = 12;
__host__ __device__ constexpr int64_t shares_of_weight(int64_t taps, int64_t filters) {
  return kWeightWarps / (taps * (filters / kFragmentM));
}

// The rows of y or dy (of one parity of dx) in a band, the bands of an image, and the bytes of a
// block.
struct Division {
  int64_t rows;
  int64_t bands;
  size_t bytes;
};

inline int64_t band_elements(const Shape& image, int64_t padding, int64_t rows) {
  return rows * (image[3] + 2 * padding) * (image[1] + kChunk);
}

// The bytes of shared memory for bands of `rows` rows.
inline size_t shared_bytes(const ConvProblem& p, int64_t rows) {
  const int64_t taps = p.w[2];
  const int64_t stride = p.options.stride.h;
  const Pair out = p.output();
  const Shape y{p.x[0], p.w[0], out.h, out.w};
  const int64_t x_band = band_elements(p.x, taps / 2, (rows - 1) * stride + taps);
  const int64_t filters = p.w[0] * (taps * taps * p.w[1] + kChunk);
  switch (p.pass) {
    case ConvPass::Forward: return static_cast<size_t>(2 * (x_band + filters));
    case ConvPass::BackwardInput:
      return static_cast<size_t>(2 * (band_elements(y, taps / 2, rows + taps - 1) + filters));
    default:
      // At the end it holds the sums of the warps that share a unit.
      return static_cast<size_t>(
          std::max(2 * (x_band + band_elements(y, 0, rows)),
                   shares_of_weight(taps, p.w[0]) > 1 ? 4 * p.w.numel() : 0));
  }
}

// Takes the fewest bands, from `least` on, whose rows fit into shared memory.
inline Division divide_images(const ConvProblem& p, int64_t least) {
  const bool input = p.pass == ConvPass::BackwardInput;
  const int64_t rows = input ? tiles_of(p.x[2], p.options.stride.h) : p.output().h;
  Division d{};
  for (int64_t bands = std::min(least, kMostBands); bands <= kMostBands; ++bands) {
    d.rows = tiles_of(rows, bands);
    d.bands = tiles_of(rows, d.rows);
    d.bytes = shared_bytes(p, d.rows);
    if (d.bytes <= kMostShared) break;
  }
  return d;
}

template <class Body>
void visit_half(DType dtype, const Body& body) {
  if (dtype == DType::Float16)
    body.template operator()<float16>();
  else
    body.template operator()<bfloat16>();
}

}  // namespace ringgrad::cuda
