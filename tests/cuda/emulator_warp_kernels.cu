// Warp intrinsics, right and wrong, for emulator_warp_test.cpp, which includes this file.
#include "ringgrad/cuda_kernels/emulator/include/cuda_bf16.h"
#include "ringgrad/cuda_kernels/emulator/include/cuda_fp16.h"
#include "ringgrad/cuda_kernels/launch.h"

namespace {

__global__ void shuffles_kernel(int* out) {
  const int t = static_cast<int>(threadIdx.x);
  out[t] = __shfl_sync(0xffffffffu, t, 5);
  out[t + 64] = __shfl_sync(0xffffffffu, t, 9, 8);  // lane 1 of each group of eight
  out[t + 128] = __shfl_down_sync(0xffffffffu, t, 3, 16);
  out[t + 192] = __shfl_up_sync(0xffffffffu, t, 3, 16);
  out[t + 256] = __shfl_xor_sync(0xffffffffu, t, 6);
}

// Lanes 0-9 and 10-31 never meet: each group sums its own lanes, and the first does so more often.
__global__ void groups_kernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const unsigned mask = lane < 10 ? 0x000003ffu : 0xfffffc00u;
  int votes = 0;
  for (int round = 0; round < (lane < 10 ? 5 : 2); ++round)
    votes += __popc(__ballot_sync(mask, lane % 2));
  out[lane] = votes;
  if (lane < 10) out[32 + lane] = __all_sync(mask, lane < 10) + 2 * __any_sync(mask, lane == 11);
}

// A partial warp with the full mask; one lane leaves before the second shuffle.
__global__ void partial_warp_kernel(double* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = __shfl_xor_sync(0xffffffffu, static_cast<double>(lane), 1);
  if (lane == 11) return;
  __syncwarp();
  out[lane] += __shfl_sync(0xffffffffu, 100.0, 3);
}

__global__ void outside_mask_kernel() { __shfl_sync(1u << threadIdx.x, 1, 0); }
__global__ void not_in_mask_kernel() { __ballot_sync(1u, 1); }
__global__ void different_masks_kernel() { __syncwarp(threadIdx.x == 0 ? 0x3u : 0x7u); }
__global__ void different_kinds_kernel() {
  if (threadIdx.x == 0)
    __syncwarp(0x3u);
  else
    __ballot_sync(0x3u, 1);
}

__global__ void atomics_kernel(int* counters, float* sums, int* order) {
  atomicAdd(&counters[threadIdx.x % 3], 1);
  atomicMax(&counters[3], static_cast<int>(threadIdx.x));
  atomicMin(&counters[4], -static_cast<int>(threadIdx.x));
  atomicAdd(sums, 0.5f);
  order[atomicAdd(&counters[5], 1)] = 1;
  int old = atomicAdd(&counters[6], 0);
  int seen;
  do {
    seen = old;
    old = atomicCAS(&counters[6], seen, seen + 2);
  } while (old != seen);
}

template <class T>
__global__ void sixteen_bit_kernel(const float* x, float* y) {
  const T a(x[0]);
  const T b(x[1]);
  y[0] = static_cast<float>(a + b);
  y[1] = static_cast<float>(a * b);
  y[2] = static_cast<float>(a - b);
  y[3] = static_cast<float>(a / b);
}

}  // namespace
