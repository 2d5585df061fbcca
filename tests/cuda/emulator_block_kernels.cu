// Small kernels, right and wrong ones, for emulator_block_test.cpp, which includes this file.
#include "ringgrad/cuda_kernels/emulator/include/cuda_pipeline.h"
#include "ringgrad/cuda_kernels/launch.h"

namespace {

__global__ void indices_kernel(int* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
  out[i] = static_cast<int>(threadIdx.x + 100 * threadIdx.y + 10000 * threadIdx.z +
                            1000000 * blockIdx.x);
}

// Every second thread leaves before the barrier; the others exchange values behind it.
__global__ void early_exit_kernel(int* entries, int* out) {
  __shared__ int values[64];
  const int t = static_cast<int>(threadIdx.x);
  atomicAdd(&entries[t], 1);
  values[t] = t;
  if (t % 2) return;
  __syncthreads();
  out[t] = values[(t + 2) % 64];
}

__global__ void divergent_kernel() {
  if (threadIdx.x < 16)
    __syncthreads();
  else
    __syncthreads();
}

// Lane 31 of the second warp waits with the first warp; the other lanes wait for it.
__global__ void deadlock_kernel() {
  if (threadIdx.x < 32 || threadIdx.x == 63)
    __syncthreads();
  else
    __syncwarp();
}

// Reverses n values through shared memory, `rounds` times, optionally without one of the two
// barriers.
__global__ void reverse_kernel(int* out, bool barrier_after_write, bool barrier_after_read) {
  __shared__ int values[96];
  const int n = static_cast<int>(blockDim.x);
  const int t = static_cast<int>(threadIdx.x);
  int mine = t;
  for (int round = 0; round < 3; ++round) {
    values[t] = mine;
    if (barrier_after_write) __syncthreads();
    mine = values[n - 1 - t];
    if (barrier_after_read) __syncthreads();
  }
  out[t] = mine;
}

__global__ void dynamic_shared_kernel(float* out, int n) {
  DYNAMIC_SHARED(float, values);
  if (threadIdx.x == 0) out[n] = values[n - 1];  // never written: NaN
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
    values[i] = 2.0f * static_cast<float>(i);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
    out[i] = values[n - 1 - i];
}

__global__ void async_copy_kernel(const float* x, float* y, bool wait) {
  __shared__ __align__(16) float values[128];
  const int t = static_cast<int>(threadIdx.x);
  __pipeline_memcpy_async(&values[4 * t], x + 4 * t, 16, t == 31 ? 8 : 0);
  __pipeline_commit();
  if (wait) __pipeline_wait_prior(0);
  __syncthreads();
  for (int i = t; i < 128; i += 32) y[i] = values[i];
  __syncthreads();
  __pipeline_wait_prior(0);
}
__global__ void unfinished_copy_kernel(const float* x) {
  __shared__ __align__(16) float values[4];
  __pipeline_memcpy_async(values, x, 16);
}
__global__ void misaligned_copy_kernel(const float* x) {
  __shared__ __align__(16) float values[8];
  __pipeline_memcpy_async(values + 1, x, 16);
}

}  // namespace
