// Converts the number of an element to its position in memory, in tensors of any strides and in
// images.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ringgrad/core/kernels/loop_plan.h"
#include "ringgrad/cuda_kernels/common/device_types.cuh"

namespace ringgrad::cuda {

// For one-dimensional launches: this thread's number in the grid, and the number of threads.
__device__ __forceinline__ int64_t thread_number() {
  return int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t thread_count() { return int64_t{gridDim.x} * blockDim.x; }

// core's LoopPlan as a kernel argument. It gives an element's position in each operand.
template <int kOperands>
struct StridedIndex {
  int dims;
  int64_t sizes[kMaxDims];  // outermost first
  int64_t strides[kOperands][kMaxDims];

  explicit StridedIndex(const LoopPlan& plan) : dims(plan.dims) {
    for (int d = 0; d < dims; ++d) {
      sizes[d] = plan.sizes[static_cast<size_t>(d)];
      for (int i = 0; i < kOperands; ++i)
        strides[i][d] = plan.strides[static_cast<size_t>(i)][static_cast<size_t>(d)];
    }
  }

  struct Offsets {
    int64_t of[kOperands];
  };
  __device__ __forceinline__ Offsets offsets(int64_t index) const {
    Offsets result{};
    for (int d = dims - 1; d > 0; --d) {
      // 32-bit divisions are several times as cheap, and nearly all tensors are small enough for
      // them.
      const bool small = (index | sizes[d]) >> 32 == 0;
      const int64_t outer =
          small ? static_cast<uint32_t>(index) / static_cast<uint32_t>(sizes[d]) : index / sizes[d];
      const int64_t inner = index - outer * sizes[d];
      for (int i = 0; i < kOperands; ++i) result.of[i] += inner * strides[i][d];
      index = outer;
    }
    for (int i = 0; i < kOperands; ++i) result.of[i] += index * strides[i][0];
    return result;
  }
};

// A 4-D tensor in a kernel: logical sizes N C H W, and strides, which are those of NCHW or of NHWC
// memory.
struct Image {
  int64_t N;
  int64_t C;
  int64_t H;
  int64_t W;
  int64_t n_stride;
  int64_t c_stride;
  int64_t h_stride;
  int64_t w_stride;

  explicit Image(const Tensor& x)
      : N(x.shape()[0]),
        C(x.shape()[1]),
        H(x.shape()[2]),
        W(x.shape()[3]),
        n_stride(x.strides()[0]),
        c_stride(x.strides()[1]),
        h_stride(x.strides()[2]),
        w_stride(x.strides()[3]) {}

  __device__ __forceinline__ int64_t at(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return n * n_stride + c * c_stride + h * h_stride + w * w_stride;
  }

  struct Place {
    int64_t n;
    int64_t c;
    int64_t h;
    int64_t w;
  };
  // Returns the position of element i in the order of memory, so that neighbouring threads use
  // neighbouring elements in both layouts.
  __device__ __forceinline__ Place place(int64_t i) const {
    if (c_stride == 1) return {i / C / W / H, i % C, i / C / W % H, i / C % W};
    return {i / W / H / C, i / W / H % C, i / W % H, i % W};
  }
  __host__ __device__ int64_t numel() const { return N * C * H * W; }
};

inline bool is_image(const Tensor& x) {
  return x.dim() == 4 && (x.is_contiguous() || x.is_channels_last());
}

// Division by a number that all threads share: a multiplication instead of the twenty instructions
// of a division (Granlund and Montgomery, "Division by Invariant Integers using Multiplication",
// 1994).
//
// n / d = (⌊n · multiplier / 2^32⌋ + n) >> shift for n < 2^31, where 2^shift is the least power of
// two that is not below d, and multiplier = ⌊2^32 (2^shift - d) / d⌋ + 1.
struct Divider {
  unsigned divisor;
  unsigned multiplier;
  unsigned shift = 0;

  // REQUIRES: by < 2^31. A 0 is replaced by 1, because an empty tensor divides nothing.
  explicit Divider(int64_t by) : divisor(by > 0 ? static_cast<unsigned>(by) : 1) {
    while (uint64_t{1} << shift < divisor) ++shift;
    multiplier = static_cast<unsigned>(((((uint64_t{1} << shift) - divisor) << 32) / divisor) + 1);
  }

  struct Result {
    unsigned quotient;
    unsigned remainder;
  };
  // REQUIRES: n < 2^31.
  __device__ __forceinline__ Result operator()(unsigned n) const {
    const unsigned quotient =
        (static_cast<unsigned>((uint64_t{n} * multiplier) >> 32) + n) >> shift;
    return {quotient, n - quotient * divisor};
  }
};

}  // namespace ringgrad::cuda
