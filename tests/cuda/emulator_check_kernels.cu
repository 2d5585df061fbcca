// Kernels with one mistake each, and their right forms, for emulator_check_test.cpp, which includes
// this file.
#include "ringgrad/cuda_kernels/common/hopper.cuh"
#include "ringgrad/cuda_kernels/emulator/include/cuda_pipeline.h"
#include "ringgrad/cuda_kernels/launch.h"

namespace {

__global__ void beyond_kernel(float* x, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] = 1;
}
__global__ void read_kernel(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }

// values[i] goes to out[n - 1 - i], twice; each barrier may be left out.
__global__ void shared_race_kernel(float* out, bool after_write, bool after_read) {
  __shared__ float values[64];
  for (int round = 0; round < 2; ++round) {
    values[threadIdx.x] = static_cast<float>(threadIdx.x);
    if (after_write) __syncthreads();
    out[threadIdx.x] = values[63 - threadIdx.x];
    if (after_read) __syncthreads();
  }
}
__global__ void dynamic_race_kernel(float* out, bool barrier) {
  DYNAMIC_SHARED(float, values);
  values[threadIdx.x] = 1;
  if (barrier) __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = values[(threadIdx.x + 1) % blockDim.x];
}
// Neighbours in a warp: __syncwarp is enough.
__global__ void warp_race_kernel(float* out, bool barrier) {
  __shared__ float values[64];
  values[threadIdx.x] = 1;
  if (barrier) __syncwarp();
  out[threadIdx.x] = values[threadIdx.x ^ 1];
}
// Eight bytes from x on, which has to be aligned so.
__global__ void pair_kernel(const float* x, float* y) {
  struct alignas(8) Pair {
    float first;
    float second;
  };
  const Pair pair = reinterpret_cast<const Pair*>(x)[threadIdx.x];
  y[threadIdx.x] = pair.first + pair.second;
}
// A block leaves its static shared memory to the next one, here and on a device by chance.
__global__ void unwritten_kernel(float* out) {
  __shared__ float values[64];
  if (blockIdx.x == 0) values[threadIdx.x] = 1;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = values[threadIdx.x];
}
__global__ void block_race_kernel(float* total, bool atomic) {
  if (threadIdx.x != 0) return;
  if (atomic)
    atomicAdd(total, 1.0f);
  else
    *total += 1;
}
// The last block reads what all have written; the barrier and each of the two fences may be left
// out.
__global__ void last_block_kernel(float* parts, unsigned* counter, float* out, bool barrier,
                                  bool release, bool acquire) {
  __shared__ bool last;
  const unsigned blocks = gridDim.x;
  const unsigned threads = blockDim.x;
  parts[blockIdx.x * threads + threadIdx.x] = 1;
  if (barrier) __syncthreads();
  if (threadIdx.x == 0) {
    if (release) __threadfence();
    last = atomicInc(counter, blocks - 1) == blocks - 1;
  }
  __syncthreads();
  if (!last) return;
  if (acquire) __threadfence();
  float total = 0;
  for (unsigned block = 0; block < blocks; ++block) total += parts[block * threads + threadIdx.x];
  out[threadIdx.x] = total;
}
// Neighbours in a word: no race.
__global__ void bytes_kernel(unsigned char* out) { out[threadIdx.x] = 1; }
__global__ void async_copy_race_kernel(const float* x, float* y, bool barrier) {
  __shared__ __align__(16) float values[128];
  __pipeline_memcpy_async(&values[4 * threadIdx.x], x + 4 * threadIdx.x, 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  if (barrier) __syncwarp();
  y[threadIdx.x] = values[127 - 4 * threadIdx.x];
}

// x by stride to shared memory, where word i lies at i times pitch, and from there to y.
__global__ void strides_kernel(const float* x, float* y, int stride, int pitch) {
  DYNAMIC_SHARED(float, values);
  values[threadIdx.x * static_cast<unsigned>(pitch)] =
      x[threadIdx.x * static_cast<unsigned>(stride)];
  __syncthreads();
  y[threadIdx.x] = values[threadIdx.x * static_cast<unsigned>(pitch)];
}

template <int kWords>
struct alignas(4 * kWords) Words {
  float word[kWords];
};

// Each lane reads kWords words. `lanes_of_row` lanes read from one row, and rows begin `pitch`
// words apart.
template <int kWords>
__global__ void rows_kernel(float* y, unsigned lanes_of_row, unsigned pitch) {
  DYNAMIC_SHARED(float, values);
  const unsigned lane = threadIdx.x;
  const unsigned place = lane / lanes_of_row * pitch + lane % lanes_of_row * kWords;
  for (unsigned i = lane; i < 32 * 32; i += 32) values[i] = static_cast<float>(i);
  __syncwarp();
  const Words<kWords> read = *reinterpret_cast<const Words<kWords>*>(&values[place]);
  y[lane] = read.word[0];
}

// ---- Hopper -------------------------------------------------------------------------------------

// All write a tile, and one stores it: the fence or the barrier may be left out.
__global__ void tile_store_kernel(float* out, bool fence, bool barrier) {
  using namespace ringgrad::cuda;
  DYNAMIC_SHARED(float, tile);
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (fence) fence_proxy_async();
  if (barrier) __syncthreads();
  if (threadIdx.x != 0) return;
  bulk_store(out, tile, 64 * sizeof(float));
  bulk_commit();
  bulk_wait<0>();
}

// One thread stores a tile and waits until it has been read. Then the others overwrite it, while
// the store is still on its way to `out`, for which that thread waits as well.
__global__ void tile_reuse_kernel(float* out) {
  using namespace ringgrad::cuda;
  DYNAMIC_SHARED(float, tile);
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    bulk_store(out, tile, 64 * sizeof(float));
    bulk_commit();
    bulk_wait_read<0>();
  }
  __syncthreads();
  if (threadIdx.x != 0) tile[threadIdx.x] = 0;
  if (threadIdx.x == 0) bulk_wait<0>();
}

// A tile is read, loaded and read again. Every thread waits for the copy, or only the one that has
// started it; the first readers meet at a barrier, or do not.
__global__ void tile_load_kernel(const float* x, float* y, bool all_wait, bool meet) {
  using namespace ringgrad::cuda;
  DYNAMIC_SHARED(float, tile);
  Mbarrier* const barrier = reinterpret_cast<Mbarrier*>(tile + 64);
  tile[threadIdx.x] = 1;
  fence_proxy_async();
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  float sum = tile[63 - threadIdx.x];
  if (meet) named_barrier_sync(1, 64);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(barrier, 64 * sizeof(float));
    bulk_load(tile, x, 64 * sizeof(float), barrier);
  }
  if (all_wait || threadIdx.x == 0) mbarrier_wait(barrier, 0);
  sum += tile[threadIdx.x];
  y[threadIdx.x] = sum;
}

__global__ void previous_launch_kernel(float* x, float* y, bool wait) {
  if (wait) ringgrad::cuda::wait_for_previous_launch();
  y[threadIdx.x] = x[threadIdx.x] + 1;
}

// 40,000 bytes of static shared memory.
__global__ void large_static_kernel(float* y) {
  __shared__ float values[10'000];
  for (unsigned i = threadIdx.x; i < 10'000; i += blockDim.x) values[i] = 1;
  y[threadIdx.x] = values[threadIdx.x];
}

__global__ void static_in_cluster_kernel(float* y) {
  __shared__ float value;
  if (threadIdx.x == 0) value = 1;
  __syncthreads();
  y[threadIdx.x] = value;
}

// A product of zeros: 64 × 64 × 16 of float16.
__global__ void counted_product_kernel(const float* x) {
  using namespace ringgrad::cuda;
  DYNAMIC_SHARED_1024(tile);
  Mbarrier* const barrier = reinterpret_cast<Mbarrier*>(tile + 4096);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(barrier, 4096);
    bulk_load(tile, x, 4096, barrier);
  }
  __syncthreads();
  mbarrier_wait(barrier, 0);
  float d[32];
  wgmma_fence();
  const uint64_t a = matrix_descriptor(tile, 1024, 128, Swizzle::None);
  wgmma<__half, 0, 0>(d, a, a, 0);
  wgmma_commit();
  wgmma_wait<0>();
}

}  // namespace
