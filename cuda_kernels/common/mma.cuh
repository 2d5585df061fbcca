// Tensor-core instructions for 16-bit floating types, for a whole warp, and the copies and the
// memory that feed them. Each has two implementations: CUDA's, and the emulator's.
//
// In fragments lane 4 g + t holds pairs of neighbouring elements, packed into 32-bit words:
//   a [16, 16]   word i: row g + 8 (i % 2), columns 2 t + 8 (i / 2) and the next
//   b [16, 8]    word i: rows 2 t + 8 i and the next, column g
//   d [16, 8]    element i: row g + 8 (i / 2), column 2 t + i % 2
// So lane 6 = 4 · 1 + 2 holds of a and d row 1 and row 9, and of b column 1:
//
//                                                     b     0  1  2 … 7
//                                                      4,5     w0
//                                                      12,13   w1
//   a          0,1  2,3  4,5  6,7   8,9  …  12,13  …   d    0,1  2,3  4,5  6,7
//     row 1              w0                 w2           1            e0 e1
//     row 9              w1                 w3           9            e2 e3
//
// Each quarter of a is an 8 × 8 matrix whose words the lanes hold row by row, in their order.
// ldmatrix loads exactly this.
#pragma once

#include <cuda_runtime.h>

#include "ringgrad/cuda_kernels/common/device_types.cuh"

#ifndef __CUDACC__
#include <cuda_pipeline.h>

#include "ringgrad/cuda_kernels/emulator/language.h"
#endif

// Dynamic shared memory as an array: DYNAMIC_SHARED(float, tile); tile[i] = ...  Its size is the
// launch's shared_bytes, and its contents are undefined. A kernel may have one. language.h has the
// emulator's definition.
#ifdef __CUDACC__
#define DYNAMIC_SHARED(Type, name)                                 \
  extern __shared__ __align__(128) unsigned char dynamic_shared[]; \
  Type* name = reinterpret_cast<Type*>(dynamic_shared)
#endif

namespace ringgrad::cuda {

#ifdef __CUDACC__

// d += a · b, accumulated in float32.
template <class T>
__device__ __forceinline__ void mma_16816(float (&d)[4], const unsigned (&a)[4],
                                          const unsigned (&b)[2]) {
  static_assert(sizeof(T) == 2, "tensor cores take float16 and bfloat16 here");
  if constexpr (std::is_same_v<T, __half>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Loads four 8 × 8 matrices from shared memory. Lane i gives the address (aligned to 16 bytes) of
// row i % 8 of matrix i / 8, and receives word j from matrix j. With kTranspose the matrices are
// transposed.
template <bool kTranspose>
__device__ __forceinline__ void ldmatrix_x4(unsigned (&fragment)[4], const void* row) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTranspose)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address)
                 : "memory");
}

// Starts copying `bytes` of 16 to shared memory, and zeros for the rest, bypassing the registers
// and the first-level cache. __pipeline_wait_prior() waits for the copy. Both addresses are aligned
// to 16. (__pipeline_memcpy_async is not used, because it branches on the number of bytes.)
__device__ __forceinline__ void copy_16_async(void* shared, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(from), "r"(bytes)
               : "memory");
}

#else

// Always inlined, so that an access is attributed to the kernel's line.
[[gnu::always_inline]] inline void copy_16_async(void* shared, const void* from, int bytes,
                                                 RINGGRAD_SITE) {
  __pipeline_memcpy_async(shared, from, 16, static_cast<size_t>(16 - bytes), site);
}

template <class T>
[[gnu::always_inline]] inline void mma_16816(float (&d)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2], RINGGRAD_SITE) {
  const auto to_float = [](uint16_t bits) { return static_cast<float>(std::bit_cast<T>(bits)); };
  emulator::mma_16816(d, a, b, to_float, site);
}
template <bool kTranspose>
[[gnu::always_inline]] inline void ldmatrix_x4(unsigned (&fragment)[4], const void* row,
                                               RINGGRAD_SITE) {
  emulator::ldmatrix_x4(fragment, row, kTranspose, site);
}

#endif

}  // namespace ringgrad::cuda
