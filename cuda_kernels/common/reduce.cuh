// Reductions over the threads of a warp and of a block. The order of the additions is fixed, so results do not depend
// on when threads run.
#pragma once

#include <cuda_runtime.h>

#include "ringgrad/core/base/number.h"

namespace ringgrad::cuda {

inline constexpr unsigned kFullMask = 0xffffffffu;
inline constexpr int kWarp = 32;

struct Sum {
  template <class A>
  __device__ __forceinline__ A operator()(A a, A b) const {
    return static_cast<A>(Wrapping<A>(a) + Wrapping<A>(b));
  }
};
// The larger one; NaN wins.
struct Max {
  template <class A>
  __device__ __forceinline__ A operator()(A a, A b) const {
    return a > b || a != a ? a : b;
  }
};

// Every lane gets the reduction over the warp's 32 lanes, in a butterfly: in step k lane i takes what lane i ^ k has.
// REQUIRES: all lanes call it.
template <class A, class Operation>
__device__ __forceinline__ A warp_reduce(A value, Operation operation) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) value = operation(value, __shfl_xor_sync(kFullMask, value, step));
  return value;
}

// Every thread gets the reduction over the block; `neutral` leaves values unchanged. REQUIRES: all threads of a
// one-dimensional block of a multiple of 32 call it.
template <class A, class Operation>
__device__ A block_reduce(A value, Operation operation, A neutral) {
  __shared__ A partial[kWarp];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  value = warp_reduce(value, operation);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = warp_reduce(lane < blockDim.x / kWarp ? partial[lane] : neutral, operation);
  // Before anybody may write to `partial` in the next reduction, everybody must have read it in this one.
  __syncthreads();
  return value;
}

}  // namespace ringgrad::cuda
