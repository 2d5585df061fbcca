// Hopper's own instructions (sm_90a): mbarriers, tensor copies (TMA), a warpgroup's products
// (wgmma), clusters, named barriers. Each has two implementations: PTX, and the emulator's model,
// which also checks the rules that the PTX ISA states and a GPU does not report.
//
// A tile's way: one thread calls mbarrier_arrive_expect_tx() and tma_load(); the copy arrives on
// the mbarrier when its bytes have landed; a warpgroup that has passed mbarrier_wait() multiplies
// by wgmma(). Results go back through shared memory: stores, fence_proxy_async(), a barrier,
// tma_store() by one thread.
//
// Names are those of the PTX ISA. Addresses of shared memory are generic pointers.
#pragma once

#include <cuda.h>

#include "ringgrad/cuda_kernels/common/mma.cuh"

#ifdef __CUDACC__
#include "ringgrad/cuda_kernels/common/wgmma.cuh"
#else
#include "ringgrad/cuda_kernels/emulator/hopper.h"
#endif

// A kernel's parameter that stays where the launch has put it: GRID_CONSTANT(TensorMap) map.
#ifdef __CUDACC__
#define GRID_CONSTANT(Type) const __grid_constant__ Type
#else
#define GRID_CONSTANT(Type) const Type
#endif

// Dynamic shared memory from a multiple of 1024 bytes on, as swizzled tiles need it. CUDA promises
// a multiple of 16 only, so the launch has to ask for kSharedSlack bytes more than the kernel uses.
#define DYNAMIC_SHARED_1024(name)              \
  DYNAMIC_SHARED(unsigned char, name##_begin); \
  unsigned char* const name =                  \
      name##_begin + (-::ringgrad::cuda::shared_address(name##_begin) & 1023)

namespace ringgrad::cuda {

using TensorMap = CUtensorMap;
using Mbarrier = uint64_t;  // opaque, in shared memory

inline constexpr int kSharedSlack = 1008;
inline constexpr int kWarpgroup = 128;  // threads

// The layouts in which shared memory holds rows of a tile: chunks of 16 bytes change places within
// spans of as many bytes. The values are those of a matrix descriptor.
enum class Swizzle : int { None = 0, Bytes128 = 1, Bytes64 = 2, Bytes32 = 3 };

#ifdef __CUDACC__

#define RINGGRAD_PTX __device__ __forceinline__

RINGGRAD_PTX unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// ---- mbarriers ----------------------------------------------------------------------------------
// A phase is complete when `arrivals` threads have arrived and all bytes that were announced have
// landed. The first phase has parity 0. A wait for the parity of a phase returns when that phase is
// complete; so a wait for parity 1 of a new mbarrier returns at once.

RINGGRAD_PTX void mbarrier_init(Mbarrier* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
// Makes the initialisations visible to tensor copies and to the cluster. A barrier must follow.
RINGGRAD_PTX void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// The memory may have another use afterwards.
RINGGRAD_PTX void mbarrier_inval(Mbarrier* barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
RINGGRAD_PTX void mbarrier_arrive(Mbarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
// Arrives, and announces `bytes` that copies will complete in this phase.
RINGGRAD_PTX void mbarrier_arrive_expect_tx(Mbarrier* barrier, unsigned bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
// Announces bytes without arriving.
RINGGRAD_PTX void mbarrier_expect_tx(Mbarrier* barrier, unsigned bytes) {
  asm volatile(
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
// Arrives on the mbarrier at the same place in block `rank` of the cluster.
RINGGRAD_PTX void mbarrier_arrive_cluster(Mbarrier* barrier, unsigned rank) {
  asm volatile(
      "{.reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; "
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];}" ::"r"(
          shared_address(barrier)),
      "r"(rank)
      : "memory");
}
// Returns true if the phase of this parity is complete. May wait for a while.
RINGGRAD_PTX bool mbarrier_try_wait(Mbarrier* barrier, unsigned parity) {
  unsigned complete;
  asm volatile(
      "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
      : "=r"(complete)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return complete != 0;
}
RINGGRAD_PTX void mbarrier_wait(Mbarrier* barrier, unsigned parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}
// The same for an mbarrier on which other blocks of the cluster arrive.
RINGGRAD_PTX void mbarrier_wait_cluster(Mbarrier* barrier, unsigned parity) {
  unsigned complete = 0;
  while (complete == 0)
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(complete)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
}

// Orders this thread's accesses to shared memory before those of tensor copies and wgmma, which
// use another way to memory (the async proxy). Whoever writes must call it, before the barrier.
RINGGRAD_PTX void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- tensor copies (TMA) ------------------------------------------------------------------------
// One thread starts a copy of a box of the tensor that `map` describes. Coordinates are those of
// the box's first element, innermost first. What lies outside of the tensor reads as zero, and is
// not written.

RINGGRAD_PTX void prefetch_tensor_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

#define RINGGRAD_TILED(DIMS, FROM_3, FROM_4, FROM_2, PARAMETERS, ...)                             \
  /* Arrives with the box's bytes on `barrier` of this block. */                                  \
  RINGGRAD_PTX void tma_load(void* to, const TensorMap* map, Mbarrier* barrier,                   \
                             RINGGRAD_UNPACK PARAMETERS) {                                        \
    asm volatile("cp.async.bulk.tensor." DIMS                                                     \
                 ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {" FROM_3       \
                 "}], [%2];" ::"r"(shared_address(to)),                                           \
                 "l"(map), "r"(shared_address(barrier)), __VA_ARGS__                              \
                 : "memory");                                                                     \
  }                                                                                               \
  /* Copies to, and arrives at, the same places of all blocks of the cluster in `mask`. */        \
  RINGGRAD_PTX void tma_load_multicast(void* to, const TensorMap* map, Mbarrier* barrier,         \
                                       uint16_t mask, RINGGRAD_UNPACK PARAMETERS) {               \
    asm volatile("cp.async.bulk.tensor." DIMS                                                     \
                 ".shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], " \
                 "[%1, {" FROM_4 "}], [%2], %3;" ::"r"(shared_address(to)),                       \
                 "l"(map), "r"(shared_address(barrier)), "h"(mask), __VA_ARGS__                   \
                 : "memory");                                                                     \
  }                                                                                               \
  /* bulk_commit() and bulk_wait() wait for it. */                                                \
  RINGGRAD_PTX void tma_store(const TensorMap* map, const void* from,                             \
                              RINGGRAD_UNPACK PARAMETERS) {                                       \
    asm volatile("cp.async.bulk.tensor." DIMS ".global.shared::cta.bulk_group [%1, {" FROM_2      \
                 "}], [%0];" ::"r"(shared_address(from)),                                         \
                 "l"(map), __VA_ARGS__                                                            \
                 : "memory");                                                                     \
  }                                                                                               \
  /* Adds to the tensor instead; rounds each sum. */                                              \
  RINGGRAD_PTX void tma_reduce_add(const TensorMap* map, const void* from,                        \
                                   RINGGRAD_UNPACK PARAMETERS) {                                  \
    asm volatile("cp.reduce.async.bulk.tensor." DIMS                                              \
                 ".global.shared::cta.add.tile.bulk_group [%1, {" FROM_2                          \
                 "}], [%0];" ::"r"(shared_address(from)),                                         \
                 "l"(map), __VA_ARGS__                                                            \
                 : "memory");                                                                     \
  }
#define RINGGRAD_UNPACK(...) __VA_ARGS__

RINGGRAD_TILED("1d", "%3", "%4", "%2", (int x), "r"(x))
RINGGRAD_TILED("2d", "%3, %4", "%4, %5", "%2, %3", (int x, int y), "r"(x), "r"(y))
RINGGRAD_TILED("3d", "%3, %4, %5", "%4, %5, %6", "%2, %3, %4", (int x, int y, int z), "r"(x),
               "r"(y), "r"(z))
RINGGRAD_TILED("4d", "%3, %4, %5, %6", "%4, %5, %6, %7", "%2, %3, %4, %5",
               (int x, int y, int z, int u), "r"(x), "r"(y), "r"(z), "r"(u))
RINGGRAD_TILED("5d", "%3, %4, %5, %6, %7", "%4, %5, %6, %7, %8", "%2, %3, %4, %5, %6",
               (int x, int y, int z, int u, int v), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v))
#undef RINGGRAD_TILED
#undef RINGGRAD_UNPACK

// Copies channels c … of the pixels of a filter's tap: from output pixel (w, h, n) on, in the order
// W, H, N, each shifted by the offsets. (w, h) counts from the map's lower corner.
RINGGRAD_PTX void tma_load_im2col(void* to, const TensorMap* map, Mbarrier* barrier, int c, int w,
                                  int h, int n, uint16_t offset_w, uint16_t offset_h) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(c), "r"(w), "r"(h), "r"(n), "h"(offset_w),
      "h"(offset_h)
      : "memory");
}
RINGGRAD_PTX void tma_load_im2col_multicast(void* to, const TensorMap* map, Mbarrier* barrier,
                                            uint16_t mask, int c, int w, int h, int n,
                                            uint16_t offset_w, uint16_t offset_h) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8}, %9;" ::"r"(
          shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(c), "r"(w), "r"(h), "r"(n), "h"(offset_w),
      "h"(offset_h), "h"(mask)
      : "memory");
}

// Copies `bytes` as they lie. Addresses and bytes are multiples of 16.
RINGGRAD_PTX void bulk_load(void* to, const void* from, unsigned bytes, Mbarrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
RINGGRAD_PTX void bulk_store(void* to, const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

// Makes a group of the stores that this thread has started since the last.
RINGGRAD_PTX void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until all but the newest kGroups groups have been written.
template <int kGroups>
RINGGRAD_PTX void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kGroups) : "memory");
}
// Waits until they have been read, so that shared memory may be overwritten.
template <int kGroups>
RINGGRAD_PTX void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}

// ---- a warpgroup's products ---------------------------------------------------------------------
// wgmma.cuh has two functions of this name, for d [64, N] (+)= a [64, 16] · b [16, N]:
//   wgmma<T, kTransA, kTransB>(d, a, b, accumulate)   a and b are matrix descriptors
//   wgmma<T, kTransB>(d, words, b, accumulate)        a is in registers, as for mma.sync
// T = float is tf32, which has K = 8 and no transpositions. A transposition of 0 means that K is
// contiguous. All four warps of an aligned group of 128 threads call it.
//
// Thread t holds N / 2 elements of d:
//   d[i] is row 16 (t / 32) + t % 32 / 4 + 8 (i / 2 % 2), column 8 (i / 4) + 2 (t % 4) + i % 2

RINGGRAD_PTX void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
RINGGRAD_PTX void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until all but the newest kGroups groups of products are complete.
template <int kGroups>
RINGGRAD_PTX void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}
// Tells the compiler that d may change here: before the fence, and after the wait.
template <int kCount>
RINGGRAD_PTX void wgmma_keep(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// ---- warps, blocks, clusters --------------------------------------------------------------------

// Stores matrices of 8 × 8: the reverse of ldmatrix_x4. Lane i gives the address (aligned to 16
// bytes) of row i % 8 of matrix i / 8.
template <bool kTranspose>
RINGGRAD_PTX void stmatrix_x4(void* row, unsigned a, unsigned b, unsigned c, unsigned d) {
  if constexpr (kTranspose)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(row)),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(row)),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}
template <bool kTranspose>
RINGGRAD_PTX void stmatrix_x2(void* row, unsigned a, unsigned b) {
  if constexpr (kTranspose)
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)),
        "r"(a), "r"(b)
        : "memory");
  else
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)),
        "r"(a), "r"(b)
        : "memory");
}

// Returns true in one lane of the warp, all of which must call it.
RINGGRAD_PTX bool elect_one() {
  unsigned elected;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(elected));
  return elected != 0;
}

// A barrier among `threads` threads of the block, a multiple of 32. Barrier 0 is __syncthreads.
RINGGRAD_PTX void named_barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
RINGGRAD_PTX void named_barrier_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Gives registers back, or takes them, so that each thread of the warpgroup has kCount. Those of a
// block are 65,536 at most; taking waits until others have given.
template <int kCount>
RINGGRAD_PTX void set_max_registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
RINGGRAD_PTX void set_max_registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

RINGGRAD_PTX unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
RINGGRAD_PTX unsigned cluster_size() {
  unsigned size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}
// Returns where `p` of this block's shared memory is in block `rank` of the cluster.
template <class T>
RINGGRAD_PTX T* map_to_rank(T* p, unsigned rank) {
  uint64_t remote;
  asm volatile("mapa.u64 %0, %1, %2;"
               : "=l"(remote)
               : "l"(reinterpret_cast<uint64_t>(p)), "r"(rank));
  return reinterpret_cast<T*>(remote);
}
RINGGRAD_PTX void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
RINGGRAD_PTX void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// Programmatic launch: waits until the launch before has ended and its writes are visible.
RINGGRAD_PTX void wait_for_previous_launch() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// Lets the next launch begin as soon as all blocks have called it or have ended.
RINGGRAD_PTX void let_next_launch_begin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Two elements, rounded to nearest, the first in the low half.
template <class T>
RINGGRAD_PTX unsigned pack(float low, float high) {
  unsigned packed;
  if constexpr (std::is_same_v<T, __half>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

#undef RINGGRAD_PTX

#endif

__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

// Describes an operand in shared memory to wgmma. The strides are in bytes. A swizzle's span has
// 32, 64 or 128 bytes.
//
// K contiguous: `stride` leads from 8 rows to the next 8. A row is a span, and the next 16 elements
// of K are 32 bytes further on. Without a swizzle a row has 16 bytes, and `leading` leads to the
// next 8 elements of K.
// M or N contiguous (transposed): a row of K is a span, and `stride` leads from 8 rows to the next
// 8. `leading` leads to the next span of M or N. Without a swizzle it is the other way round.
__device__ __forceinline__ uint64_t matrix_descriptor(const void* p, unsigned leading,
                                                      unsigned stride, Swizzle swizzle) {
  return static_cast<uint64_t>((shared_address(p) & 0x3ffff) >> 4) |
         static_cast<uint64_t>(leading >> 4) << 16 | static_cast<uint64_t>(stride >> 4) << 32 |
         static_cast<uint64_t>(swizzle) << 62;
}

// Returns the first byte of a chunk of 16 bytes in a swizzled tile. The tile has rows of 128 bytes
// and begins at a multiple of 1024.
__device__ __forceinline__ int swizzled_128(int row, int chunk) {
  return row * 128 + ((chunk ^ (row & 7)) << 4);
}

}  // namespace ringgrad::cuda
