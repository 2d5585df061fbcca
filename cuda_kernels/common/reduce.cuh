// Reductions over the threads of a warp and of a block, and a scheme for kernels that work row by
// row. The order of the additions is fixed, so results do not depend on when threads run.
#pragma once

#include <cuda_runtime.h>

#include "ringgrad/core/base/number.h"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {

inline constexpr unsigned kFullMask = 0xffffffffu;
inline constexpr int kWarp = 32;

struct Sum {
  template <class A>
  __device__ __forceinline__ A operator()(A a, A b) const {
    return static_cast<A>(Wrapping<A>(a) + Wrapping<A>(b));
  }
};
// Returns the larger number; NaN wins.
struct Max {
  template <class A>
  __device__ __forceinline__ A operator()(A a, A b) const {
    return a > b || a != a ? a : b;
  }
};

// Returns the value of lane i ^ step. Types that shuffles do not support have an overload.
template <class A>
__device__ __forceinline__ A shuffle_xor(A value, int step) {
  return __shfl_xor_sync(kFullMask, value, step);
}

// Gives every lane the reduction over the warp's 32 lanes, in a butterfly: in step k lane i takes
// the value of lane i ^ k. REQUIRES: all lanes call it.
template <class A, class Operation>
__device__ __forceinline__ A warp_reduce(A value, Operation operation) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2)
    value = operation(value, shuffle_xor(value, step));
  return value;
}

// Gives every thread the reduction over the block. `neutral` leaves values unchanged. REQUIRES: all
// threads of a one-dimensional block of a multiple of 32 call it.
template <class A, class Operation>
__device__ A block_reduce(A value, Operation operation, A neutral) {
  __shared__ A partial[kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  value = warp_reduce(value, operation);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = warp_reduce(lane < blockDim.x / kWarp ? partial[lane] : neutral, operation);
  // No thread may write to `partial` in the next reduction before all have read it in this one.
  __syncthreads();
  return value;
}

// ---- rows ---------------------------------------------------------------------------------------
//
// Row-wise kernels take x [N, C], one row for each team of threads. A team is a warp if rows are
// short and a block if they are long. A kernel is written once for both:
//
//   template <class Team, class T>
//   __global__ void softmax_kernel(Team team, int64_t N, int64_t C, …) {
//     for (int64_t n = team.first_row(); n < N; n += team.row_step())
//       for (int64_t c = team.rank(); c < C; c += team.size()) …

struct WarpTeam {
  __device__ __forceinline__ int64_t first_row() const {
    return int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  }
  __device__ __forceinline__ int64_t row_step() const {
    return int64_t{gridDim.x} * (blockDim.x / kWarp);
  }
  __device__ __forceinline__ int rank() const { return static_cast<int>(threadIdx.x % kWarp); }
  __device__ __forceinline__ int size() const { return kWarp; }
  template <class A, class Operation>
  __device__ __forceinline__ A reduce(A value, Operation operation, A) const {
    return warp_reduce(value, operation);
  }
};

struct BlockTeam {
  __device__ __forceinline__ int64_t first_row() const { return blockIdx.x; }
  __device__ __forceinline__ int64_t row_step() const { return gridDim.x; }
  __device__ __forceinline__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ int size() const { return static_cast<int>(blockDim.x); }
  template <class A, class Operation>
  __device__ __forceinline__ A reduce(A value, Operation operation, A neutral) const {
    return block_reduce(value, operation, neutral);
  }
};

// Launches warp_kernel or block_kernel, two instances of one template, on all rows.
template <class... Params, class... Args>
void launch_rows(Stream stream, int64_t rows, int64_t columns,
                 void (*warp_kernel)(WarpTeam, Params...),
                 void (*block_kernel)(BlockTeam, Params...), const Args&... args) {
  // A warp takes 32 steps for a row of 1024. For longer rows the other warps of a block help more
  // than more rows do.
  constexpr int64_t kLongRow = 1024;
  if (columns <= kLongRow)
    launch_elements(stream, rows * kWarp, warp_kernel, WarpTeam{}, args...);
  else
    launch(block_kernel, grid_stride_blocks(stream, rows, 1), kThreads, 0, stream, BlockTeam{},
           args...);
}

}  // namespace ringgrad::cuda
