// Kernels that use one of Hopper's instructions each, right or with one mistake, for
// emulator_hopper_test.cpp, which includes this file.
#include "ringgrad/cuda_kernels/common/hopper.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace {

using namespace ringgrad::cuda;
using ringgrad::str;

// Starts the block's only mbarrier, after `bytes` of tiles in dynamic shared memory.
__device__ Mbarrier* mbarrier_behind(unsigned char* shared, int bytes) {
  Mbarrier* const barrier = reinterpret_cast<Mbarrier*>(shared + bytes);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  return barrier;
}

// ---- copies -------------------------------------------------------------------------------------

struct Place {
  int rank;
  int at[5];
  int offset_w = -1;  // im2col
  int offset_h = 0;
};

__device__ void load_at(void* to, const TensorMap* map, Mbarrier* barrier, const Place& p) {
  const auto& c = p.at;
  if (p.offset_w >= 0)
    tma_load_im2col(to, map, barrier, c[0], c[1], c[2], c[3], static_cast<uint16_t>(p.offset_w),
                    static_cast<uint16_t>(p.offset_h));
  else if (p.rank == 1)
    tma_load(to, map, barrier, c[0]);
  else if (p.rank == 2)
    tma_load(to, map, barrier, c[0], c[1]);
  else if (p.rank == 3)
    tma_load(to, map, barrier, c[0], c[1], c[2]);
  else if (p.rank == 4)
    tma_load(to, map, barrier, c[0], c[1], c[2], c[3]);
  else
    tma_load(to, map, barrier, c[0], c[1], c[2], c[3], c[4]);
}
__device__ void store_at(const TensorMap* map, const void* from, const Place& p) {
  const auto& c = p.at;
  if (p.rank == 1)
    tma_store(map, from, c[0]);
  else if (p.rank == 2)
    tma_store(map, from, c[0], c[1]);
  else if (p.rank == 3)
    tma_store(map, from, c[0], c[1], c[2]);
  else if (p.rank == 4)
    tma_store(map, from, c[0], c[1], c[2], c[3]);
  else
    tma_store(map, from, c[0], c[1], c[2], c[3], c[4]);
}

// Loads a box, and copies it to `out` as it lies in shared memory.
__global__ void load_kernel(GRID_CONSTANT(TensorMap) map, Place place, int bytes, uint16_t* out) {
  DYNAMIC_SHARED_1024(shared);
  Mbarrier* const barrier = mbarrier_behind(shared, bytes);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(barrier, static_cast<unsigned>(bytes));
    load_at(shared, &map, barrier, place);
  }
  mbarrier_wait(barrier, 0);
  for (int i = static_cast<int>(threadIdx.x); i < bytes / 2; i += static_cast<int>(blockDim.x))
    out[i] = reinterpret_cast<const uint16_t*>(shared)[i];
}

// Loads `bytes` as they lie, and stores them as a box, or adds them.
__global__ void store_kernel(GRID_CONSTANT(TensorMap) map, Place place, int bytes,
                             const uint16_t* from, bool add) {
  DYNAMIC_SHARED_1024(shared);
  Mbarrier* const barrier = mbarrier_behind(shared, bytes);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(barrier, static_cast<unsigned>(bytes));
    bulk_load(shared, from, static_cast<unsigned>(bytes), barrier);
  }
  mbarrier_wait(barrier, 0);
  if (threadIdx.x != 0) return;
  if (add)
    tma_reduce_add(&map, shared, place.at[0], place.at[1]);
  else
    store_at(&map, shared, place);
  bulk_commit();
  bulk_wait<0>();
}

__global__ void bulk_kernel(const float* x, float* y, unsigned bytes) {
  DYNAMIC_SHARED_1024(shared);
  Mbarrier* const barrier = mbarrier_behind(shared, 1024);
  if (threadIdx.x != 0) return;
  mbarrier_arrive_expect_tx(barrier, bytes);
  bulk_load(shared, x, bytes, barrier);
  mbarrier_wait(barrier, 0);
  bulk_store(y, shared, bytes);
  bulk_commit();
  bulk_wait<0>();
}

// ---- products -----------------------------------------------------------------------------------

// Loads a and b in boxes of a swizzle's span each, and multiplies: d [64, N].
struct OperandBoxes {
  int boxes;
  int rows;   // of a box
  int bytes;  // of a box
  unsigned leading;
  unsigned stride;
  Swizzle swizzle;
};

__device__ void load_operand(unsigned char* to, const TensorMap* map, Mbarrier* barrier,
                             const OperandBoxes& o, int elements) {
  mbarrier_expect_tx(barrier, static_cast<unsigned>(o.boxes * o.bytes));
  for (int i = 0; i < o.boxes; ++i) tma_load(to + i * o.bytes, map, barrier, i * elements, 0);
}

template <class T, int kColumns, int kTransA, int kTransB>
__global__ void wgmma_kernel(GRID_CONSTANT(TensorMap) map_a, GRID_CONSTANT(TensorMap) map_b,
                             OperandBoxes a, OperandBoxes b, int elements_a, int elements_b,
                             float* out, int accumulate) {
  DYNAMIC_SHARED_1024(shared);
  unsigned char* const at_b = shared + 16384;
  Mbarrier* const barrier = mbarrier_behind(shared, 16384 * 4);
  if (threadIdx.x == 0) {
    load_operand(shared, &map_a, barrier, a, elements_a);
    load_operand(at_b, &map_b, barrier, b, elements_b);
    mbarrier_arrive(barrier);
  }
  mbarrier_wait(barrier, 0);
  float d[kColumns / 2];
  for (float& sum : d) sum = 1;
  wgmma_keep(d);
  wgmma_fence();
  wgmma<T, kTransA, kTransB>(d, matrix_descriptor(shared, a.leading, a.stride, a.swizzle),
                             matrix_descriptor(at_b, b.leading, b.stride, b.swizzle), accumulate);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_keep(d);
  const int t = static_cast<int>(threadIdx.x);
  for (int i = 0; i < kColumns / 2; ++i)
    out[(t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8) * kColumns + i / 4 * 8 + t % 4 * 2 + i % 2] =
        d[i];
}

// The same with a in registers: x [64, 16].
template <class T, int kColumns>
__global__ void wgmma_registers_kernel(GRID_CONSTANT(TensorMap) map_b, const uint16_t* x,
                                       float* out) {
  DYNAMIC_SHARED_1024(shared);
  Mbarrier* const barrier = mbarrier_behind(shared, 16384);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(barrier, kColumns * 32);
    tma_load(shared, &map_b, barrier, 0, 0);
  }
  const int t = static_cast<int>(threadIdx.x);
  const int row = t / 32 * 16 + t % 32 / 4;
  unsigned words[4];
  for (int i = 0; i < 4; ++i) {
    const uint16_t* const from = x + (row + i % 2 * 8) * 16 + t % 4 * 2 + i / 2 * 8;
    words[i] = from[0] | static_cast<unsigned>(from[1]) << 16;
  }
  mbarrier_wait(barrier, 0);
  float d[kColumns / 2];
  wgmma_fence();
  wgmma<T, 0>(d, words, matrix_descriptor(shared, 16, 256, Swizzle::Bytes32), 0);
  wgmma_commit();
  wgmma_wait<0>();
  for (int i = 0; i < kColumns / 2; ++i)
    out[(row + i / 2 % 2 * 8) * kColumns + i / 4 * 8 + t % 4 * 2 + i % 2] = d[i];
}

// ---- warps and blocks ---------------------------------------------------------------------------

// Stores the words lane × 4 + i as matrices, and copies them out.
template <bool kTranspose>
__global__ void stmatrix_kernel(uint16_t* out, int matrices) {
  DYNAMIC_SHARED_1024(shared);
  const unsigned lane = threadIdx.x;
  const auto word = [&](unsigned i) { return (lane * 8 + i * 2) | (lane * 8 + i * 2 + 1) << 16; };
  unsigned char* const row = shared + lane % 8 * 16 + lane / 8 % 4 * 128;
  if (matrices == 4)
    stmatrix_x4<kTranspose>(row, word(0), word(1), word(2), word(3));
  else
    stmatrix_x2<kTranspose>(row, word(0), word(1));
  __syncwarp();
  for (int i = static_cast<int>(lane); i < matrices * 64; i += 32)
    out[i] = reinterpret_cast<const uint16_t*>(shared)[i];
}

__global__ void elect_kernel(int* counts) {
  if (elect_one()) atomicAdd(&counts[threadIdx.x / 32], 1);
}

// Three warps arrive and go on; the fourth waits for what they have written.
__global__ void arrive_kernel(int* out, bool wait) {
  DYNAMIC_SHARED(int, values);
  const int t = static_cast<int>(threadIdx.x);
  if (t >= 32) {
    values[t] = t;
    named_barrier_arrive(3, 128);
    return;
  }
  if (wait) named_barrier_sync(3, 128);
  int sum = 0;
  for (int i = 32; i < 128; ++i) sum += values[i];
  out[t] = sum;
  if (!wait) named_barrier_sync(3, 128);
}

// Two roles meet at __syncthreads in different lines, which CUDA allows.
__global__ void roles_kernel(int* out) {
  __shared__ int value;
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0) value = 7;
    __syncthreads();
  } else {
    __syncthreads();
    out[threadIdx.x - 32] = value;
  }
}

// The first byte of dynamic shared memory, and that of a tile in it.
__global__ void alignment_kernel(unsigned* out) {
  DYNAMIC_SHARED_1024(shared);
  out[0] = shared_address(shared_begin) % 1024;
  out[1] = shared_address(shared) % 1024;
  out[2] = static_cast<unsigned>(reinterpret_cast<uintptr_t>(shared) % 1024);
}

// A spinning wait: other threads go on.
__global__ void try_wait_kernel(int* out) {
  DYNAMIC_SHARED_1024(shared);
  Mbarrier* const barrier = mbarrier_behind(shared, 0);
  if (threadIdx.x < 32) {
    while (!mbarrier_try_wait(barrier, 0)) {
    }
    out[threadIdx.x] = 1;
  } else if (threadIdx.x == 32) {
    mbarrier_arrive(barrier);
  }
}

// Each block adds what the next one of its cluster has.
__global__ void cluster_kernel(int* out) {
  DYNAMIC_SHARED(int, value);
  if (threadIdx.x == 0) *value = static_cast<int>(blockIdx.x) + 1;
  cluster_sync();
  const unsigned next = (cluster_rank() + 1) % cluster_size();
  if (threadIdx.x == 0) out[blockIdx.x] = *map_to_rank(value, next) * 100 + *value;
  cluster_sync();
}

// Blocks arrive on the mbarrier of the first, which waits for all.
__global__ void remote_arrival_kernel(int* out) {
  DYNAMIC_SHARED_1024(shared);
  Mbarrier* const barrier = reinterpret_cast<Mbarrier*>(shared);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, cluster_size());
    fence_mbarrier_init();
  }
  cluster_sync();
  if (threadIdx.x == 0) {
    atomicAdd(out, 1);
    mbarrier_arrive_cluster(barrier, 0);
    if (cluster_rank() == 0) {
      mbarrier_wait_cluster(barrier, 0);
      out[1] = atomicAdd(out, 0);
    }
  }
  cluster_sync();
}

}  // namespace
