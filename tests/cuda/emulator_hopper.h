// Helpers of the emulator's tests of Hopper's instructions: tensor maps, and numbers.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "ringgrad/cuda_kernels/emulator/include/cuda.h"
#include "ringgrad/cuda_kernels/emulator/include/cuda_bf16.h"
#include "ringgrad/tests/cuda/emulator_util.h"

namespace ringgrad::test {

// The parts of a tensor map; the strides follow from the sizes.
struct MapOf {
  void* address = nullptr;
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  int element_bytes = 2;
  std::vector<cuuint64_t> sizes;
  std::vector<cuuint32_t> box;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  std::vector<cuuint32_t> steps = {1, 1, 1, 1, 1};
};

inline std::vector<cuuint64_t> strides_of(const MapOf& of) {
  std::vector<cuuint64_t> strides;
  cuuint64_t bytes = static_cast<cuuint64_t>(of.element_bytes);
  for (size_t i = 0; i + 1 < of.sizes.size(); ++i) strides.push_back(bytes *= of.sizes[i]);
  strides.push_back(0);
  return strides;
}

// Throws CudaError with the rule that the map breaks.
inline void expect_map(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  cuGetErrorString(result, &text);
  throw CudaError(text);
}

inline CUtensorMap tiled_map(const MapOf& of) {
  CUtensorMap map;
  expect_map(cuTensorMapEncodeTiled(
      &map, of.type, static_cast<cuuint32_t>(of.sizes.size()), of.address, of.sizes.data(),
      strides_of(of).data(), of.box.data(), of.steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
      of.swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}

// Small numbers that bfloat16 and float16 represent exactly.
inline std::vector<float> noise(size_t n, unsigned seed) {
  std::minstd_rand random(seed);
  std::vector<float> values(n);
  for (float& v : values) v = static_cast<float>(static_cast<int>(random() >> 8 & 15) - 8) / 8;
  return values;
}
template <class T>
std::vector<T> rounded(const std::vector<float>& values) {
  return std::vector<T>(values.begin(), values.end());
}
// The largest |a - b| / (1 + |b|); infinite if anything is NaN.
template <class T>
double difference(const std::vector<T>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double d = std::abs(static_cast<float>(a[i]) - b[i]) / (1 + std::abs(b[i]));
    if (!(d <= most)) most = std::isnan(d) ? HUGE_VAL : d;
  }
  return most;
}

}  // namespace ringgrad::test
