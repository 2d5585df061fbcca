// The part of CUDA C++ that a kernel uses, on the host. Keywords become nothing, built-in variables
// become thread-local ones, and barriers and warp intrinsics become calls of the block's scheduler.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <math.h>  // expf, fmaxf, …: CUDA has them in the global namespace

#include "ringgrad/cuda_kernels/emulator/block.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
// Each operating system thread has one copy. It runs one block at a time, and fibers never leave
// it. (Function-local thread_local variables are static, as shared arrays are.)
#define __shared__ thread_local
// Dynamic shared memory in the form that both compilers understand: DYNAMIC_SHARED(float, tile);
// tile[i] = ...
#define DYNAMIC_SHARED(Type, name) \
  Type* name = static_cast<Type*>(::ringgrad::emulator::running_block->dynamic_shared())

inline constinit thread_local uint3 threadIdx{0, 0, 0}, blockIdx{0, 0, 0};
inline constinit thread_local dim3 blockDim;
inline constinit thread_local dim3 gridDim;

namespace ringgrad::emulator {

// The block whose kernel this operating system thread runs.
inline constinit thread_local Block* running_block = nullptr;

template <class T>
uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "shuffles move up to 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T from_bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::string combine_shuffle(Lane* lanes, uint32_t arrived);
std::string combine_ballot(Lane* lanes, uint32_t arrived);
std::string combine_nothing(Lane* lanes, uint32_t arrived);

template <class T>
T shuffle(uint32_t mask, T value, int source, const char* kind, Site site) {
  return from_bits<T>(
      running_block->collective(mask, {to_bits(value), 0, source}, combine_shuffle, kind, site)
          .out);
}
inline int lane() { return running_block->lane(); }

}  // namespace ringgrad::emulator

// ---- barriers -----------------------------------------------------------------------------------
#define RINGGRAD_SITE ::ringgrad::emulator::Site site = ::ringgrad::emulator::Site::here()

inline void __syncthreads(RINGGRAD_SITE) { ringgrad::emulator::running_block->sync_threads(site); }
inline void __syncwarp(unsigned mask = 0xffffffffu, RINGGRAD_SITE) {
  ringgrad::emulator::running_block->collective(mask, {}, ringgrad::emulator::combine_nothing,
                                                "__syncwarp", site);
}
[[noreturn]] inline void __trap(RINGGRAD_SITE) {
  ringgrad::emulator::running_block->fail(site, "__trap");
}

// ---- warp shuffles: `width` divides the warp into groups that shuffle among themselves ----------
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, RINGGRAD_SITE) {
  const int base = ringgrad::emulator::lane() & ~(width - 1);
  return ringgrad::emulator::shuffle(mask, value, base + (source & (width - 1)), "__shfl_sync",
                                     site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, RINGGRAD_SITE) {
  const int lane = ringgrad::emulator::lane();
  const int source = lane + static_cast<int>(delta);
  const bool inside = (lane & (width - 1)) + static_cast<int>(delta) < width;
  return ringgrad::emulator::shuffle(mask, value, inside ? source : lane, "__shfl_down_sync", site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, RINGGRAD_SITE) {
  const int lane = ringgrad::emulator::lane();
  const int source = lane - static_cast<int>(delta);
  const bool inside = (lane & (width - 1)) >= static_cast<int>(delta);
  return ringgrad::emulator::shuffle(mask, value, inside ? source : lane, "__shfl_up_sync", site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, RINGGRAD_SITE) {
  const int lane = ringgrad::emulator::lane();
  const int source = lane ^ lane_mask;
  const bool inside = (source & ~(width - 1)) <= (lane & ~(width - 1));
  return ringgrad::emulator::shuffle(mask, value, inside ? source : lane, "__shfl_xor_sync", site);
}

// ---- warp votes ---------------------------------------------------------------------------------
inline unsigned __ballot_sync(unsigned mask, int predicate, RINGGRAD_SITE) {
  const ringgrad::emulator::Lane vote{predicate != 0, 0, 0};
  return static_cast<unsigned>(
      ringgrad::emulator::running_block
          ->collective(mask, vote, ringgrad::emulator::combine_ballot, "a warp vote", site)
          .out);
}
inline int __any_sync(unsigned mask, int predicate, RINGGRAD_SITE) {
  return __ballot_sync(mask, predicate, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, RINGGRAD_SITE) {
  return __ballot_sync(mask, !predicate, site) == 0;
}

// ---- atomic functions on global and shared memory -----------------------------------------------
// Relaxed, as in CUDA: ordering requires a fence or a barrier.
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(compare, value, std::memory_order_relaxed);
  return compare;
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> cell(*address);
  T old = cell.load(std::memory_order_relaxed);
  while (old < value && !cell.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
  return old;
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> cell(*address);
  T old = cell.load(std::memory_order_relaxed);
  while (value < old && !cell.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
  return old;
}

template <class T>
T atomicInc(T* address, std::type_identity_t<T> last) {  // 0, 1, … last, 0, …
  std::atomic_ref<T> cell(*address);
  T old = cell.load(std::memory_order_relaxed);
  while (!cell.compare_exchange_weak(old, old >= last ? 0 : old + 1, std::memory_order_relaxed)) {
  }
  return old;
}

// Orders this thread's accesses before it and after it, for the threads of all blocks.
inline void __threadfence() { ringgrad::emulator::running_block->fence(); }

// The host's nanoseconds: differences are not a device's clocks.
long long clock64();

// ---- mathematical functions, as far as kernels and tests call them ------------------------------
inline int __popc(unsigned x) { return std::popcount(x); }

#define RINGGRAD_MIN_MAX(T)                        \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
RINGGRAD_MIN_MAX(int)
RINGGRAD_MIN_MAX(unsigned)
RINGGRAD_MIN_MAX(long)
RINGGRAD_MIN_MAX(unsigned long)
RINGGRAD_MIN_MAX(long long)
RINGGRAD_MIN_MAX(float)
RINGGRAD_MIN_MAX(double)
#undef RINGGRAD_MIN_MAX

// ---- tensor cores -------------------------------------------------------------------------------
// The fragment layouts are those of the PTX ISA ("Matrix Fragments for mma.m16n8k16" and
// "Warp-level matrix load instruction: ldmatrix"). Kernels reach these functions through
// common/mma.cuh.
namespace ringgrad::emulator {

using ToFloat = float (*)(uint16_t bits);

// mma.sync.aligned.m16n8k16.row.col.f32: d [16, 8] += a [16, 16] · b [16, 8]. Every lane passes its
// part. `to_float` converts the 16-bit type of a and b.
void mma_16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], ToFloat to_float,
               Site site);

// ldmatrix.sync.aligned.m8n8.x4(.trans).shared.b16: four 8 × 8 matrices of 16-bit elements; lane i
// passes the address of row i % 8 of matrix i / 8, aligned to 16 bytes.
void ldmatrix_x4(unsigned (&fragment)[4], const void* row, bool transpose, Site site);

}  // namespace ringgrad::emulator
