// Tensor maps: what TMA knows about a tensor in memory, and which box of it a copy moves. A kernel
// receives them as __grid_constant__ arguments.
#pragma once

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

}  // namespace ringgrad::cuda
