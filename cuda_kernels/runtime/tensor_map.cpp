#include "ringgrad/cuda_kernels/runtime/tensor_map.h"

#include <algorithm>
#include <array>

#include <cuda_runtime.h>

#include "ringgrad/core/error.h"
#include "ringgrad/core/shape.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"

namespace ringgrad::cuda {
namespace {

constexpr size_t kMostDimensions = 5;

// Returns a function of the driver. The runtime knows where it is, so nothing links with the
// driver, and programs start on machines without one.
template <class Function>
Function driver_function(const char* name) {
  constexpr unsigned kSinceVersion = 12000;
  constexpr unsigned long long kNoFlags = 0;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &function, kSinceVersion, kNoFlags, &found));
  if (found != cudaDriverEntryPointSuccess)
    throw CudaError(str(current_op(), ": the driver has no ", name,
                        ", expected one of CUDA 12.0 or newer; update the driver"));
  return reinterpret_cast<Function>(function);
}

CUtensorMapDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::Float16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::BFloat16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::Float32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    default:
      throw DTypeError(str(current_op(), ": a tensor map of ", dtype,
                           ", expected float16, bfloat16 or float32"));
  }
}

}  // namespace

CUtensorMap tiled_map(const TiledMap& map) {
  static const auto encode =
      driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  std::array<cuuint64_t, kMostDimensions> sizes{};
  std::array<cuuint64_t, kMostDimensions> strides{};
  std::array<cuuint32_t, kMostDimensions> box{};
  std::array<cuuint32_t, kMostDimensions> steps{};
  std::ranges::copy(map.sizes, sizes.begin());
  std::ranges::copy(map.strides, strides.begin());
  std::ranges::copy(map.box, box.begin());
  steps.fill(1);
  CUtensorMap result;
  const CUresult error =
      encode(&result, type_of(map.dtype), static_cast<cuuint32_t>(map.sizes.size()),
             const_cast<void*>(map.data), sizes.data(), strides.data(), box.data(), steps.data(),
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != CUDA_SUCCESS)
    throw CudaError(str(current_op(), ": cuTensorMapEncodeTiled failed with error ",
                        static_cast<int>(error), " for sizes ", Shape(map.sizes),
                        ", strides in bytes ", Shape(map.strides), ", box ", Shape(map.box)));
  return result;
}

CUtensorMap im2col_map(const Im2colMap& map) {
  static const auto encode =
      driver_function<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  const auto element = static_cast<int64_t>(itemsize(map.dtype));
  std::array<cuuint64_t, 4> sizes{};
  std::array<cuuint64_t, 3> strides{};
  std::ranges::copy(map.sizes, sizes.begin());
  int64_t bytes = element;
  for (size_t i = 0; i < strides.size(); ++i) {
    bytes *= map.sizes[i];
    strides[i] = static_cast<cuuint64_t>(bytes);
  }
  std::array<int, 2> lower{};
  std::array<int, 2> upper{};
  std::array<cuuint32_t, 4> steps{1, 1, 1, 1};
  for (size_t i = 0; i < 2; ++i) {
    lower[i] = static_cast<int>(map.lower[i]);
    upper[i] = static_cast<int>(map.upper[i]);
    steps[i + 1] = static_cast<cuuint32_t>(map.strides[i]);
  }
  CUtensorMap result;
  const CUresult error =
      encode(&result, type_of(map.dtype), 4, const_cast<void*>(map.data), sizes.data(),
             strides.data(), lower.data(), upper.data(), static_cast<cuuint32_t>(map.channels),
             static_cast<cuuint32_t>(map.pixels), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != CUDA_SUCCESS)
    throw CudaError(str(current_op(), ": cuTensorMapEncodeIm2col failed with error ",
                        static_cast<int>(error), " for W, H from ", map.lower[0], ", ",
                        map.lower[1], " to ", map.upper[0], ", ", map.upper[1], ", strides ",
                        map.strides[0], ", ", map.strides[1], ", ", map.pixels, " pixels of ",
                        map.channels, " channels"));
  return result;
}

}  // namespace ringgrad::cuda
