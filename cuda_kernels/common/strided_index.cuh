// core's LoopPlan as kernel arguments: from the number of an element to its place in each operand.
#pragma once

#include <cuda_runtime.h>

#include "ringgrad/core/kernels/loop_plan.h"

namespace ringgrad::cuda {

template <int kOperands>
struct StridedIndex {
  int dims;
  int64_t sizes[kMaxDims];  // outermost first
  int64_t strides[kOperands][kMaxDims];

  explicit StridedIndex(const LoopPlan& plan) : dims(plan.dims) {
    for (int d = 0; d < dims; ++d) {
      sizes[d] = plan.sizes[static_cast<size_t>(d)];
      for (int i = 0; i < kOperands; ++i) strides[i][d] = plan.strides[static_cast<size_t>(i)][static_cast<size_t>(d)];
    }
  }

  struct Offsets {
    int64_t of[kOperands];
  };
  __device__ __forceinline__ Offsets offsets(int64_t index) const {
    Offsets result{};
    for (int d = dims - 1; d > 0; --d) {
      // Divisions of 32-bit numbers are several times cheaper, and nearly all tensors are small enough for them.
      const bool small = (index | sizes[d]) >> 32 == 0;
      const int64_t outer = small ? static_cast<uint32_t>(index) / static_cast<uint32_t>(sizes[d]) : index / sizes[d];
      const int64_t inner = index - outer * sizes[d];
      for (int i = 0; i < kOperands; ++i) result.of[i] += inner * strides[i][d];
      index = outer;
    }
    for (int i = 0; i < kOperands; ++i) result.of[i] += index * strides[i][0];
    return result;
  }
};

// For one-dimensional launches: this thread's number in the grid, and how many there are.
__device__ __forceinline__ int64_t thread_number() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int64_t thread_count() { return int64_t{gridDim.x} * blockDim.x; }

}  // namespace ringgrad::cuda
