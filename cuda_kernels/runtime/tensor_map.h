// Tensor maps: what TMA knows about a tensor in memory, and which box of it a copy moves. A kernel
// receives them as __grid_constant__ arguments.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <cuda.h>

#include "ringgrad/core/dtype.h"

namespace ringgrad::cuda {

// A tensor of rank 2 to 5 whose first dimension is contiguous. Sizes and boxes are in elements,
// strides in bytes.
struct TiledMap {
  DType dtype;  // float16, bfloat16 or float32
  const void* data;
  std::vector<int64_t> sizes;    // the contiguous dimension first
  std::vector<int64_t> strides;  // of all dimensions but the first
  std::vector<int64_t> box;
};

// Boxes are swizzled by 128 bytes, and have zeros where they are outside of the tensor. Throws
// CudaError if the driver refuses the map. Thread-safe.
// REQUIRES: data and strides are multiples of 16 bytes; the box's first dimension has at most 128
// bytes, the others at most 256 elements.
CUtensorMap tiled_map(const TiledMap& map);

// A contiguous NHWC tensor, and the pixels that one tap sees: `pixels` pixels from a place on, in
// the order W, H, N. Pairs are (W, H). Output pixel 0 begins at `lower` in the image, the next one
// `strides` further on, and the last one at most at `upper`, counted from the image's last pixel.
struct Im2colMap {
  DType dtype;  // float16, bfloat16 or float32
  const void* data;
  std::array<int64_t, 4> sizes;  // C, W, H, N
  std::array<int64_t, 2> lower;
  std::array<int64_t, 2> upper;
  std::array<int64_t, 2> strides;
  int64_t channels;  // of a copy
  int64_t pixels;    // of a copy
};

// Like tiled_map().
// REQUIRES: data and a pixel's bytes are multiples of 16; `channels` have at most 128 bytes, pixels
// are at most 1024; corners are -128 … 127, strides at most 8.
CUtensorMap im2col_map(const Im2colMap& map);

}  // namespace ringgrad::cuda
