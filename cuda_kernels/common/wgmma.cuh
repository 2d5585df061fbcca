// wgmma.mma_async for nvcc: a warpgroup's product, for every N. hopper.cuh includes this file.
//
// One instruction names each of its N / 2 accumulators, so the preprocessor writes the lists: those
// of R registers are those of R - 4 and four more.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#define RINGGRAD_NAMES_4 "%0, %1, %2, %3"
#define RINGGRAD_NAMES_8 RINGGRAD_NAMES_4 ", %4, %5, %6, %7"
#define RINGGRAD_NAMES_12 RINGGRAD_NAMES_8 ", %8, %9, %10, %11"
#define RINGGRAD_NAMES_16 RINGGRAD_NAMES_12 ", %12, %13, %14, %15"
#define RINGGRAD_NAMES_20 RINGGRAD_NAMES_16 ", %16, %17, %18, %19"
#define RINGGRAD_NAMES_24 RINGGRAD_NAMES_20 ", %20, %21, %22, %23"
#define RINGGRAD_NAMES_28 RINGGRAD_NAMES_24 ", %24, %25, %26, %27"
#define RINGGRAD_NAMES_32 RINGGRAD_NAMES_28 ", %28, %29, %30, %31"
#define RINGGRAD_NAMES_36 RINGGRAD_NAMES_32 ", %32, %33, %34, %35"
#define RINGGRAD_NAMES_40 RINGGRAD_NAMES_36 ", %36, %37, %38, %39"
#define RINGGRAD_NAMES_44 RINGGRAD_NAMES_40 ", %40, %41, %42, %43"
#define RINGGRAD_NAMES_48 RINGGRAD_NAMES_44 ", %44, %45, %46, %47"
#define RINGGRAD_NAMES_52 RINGGRAD_NAMES_48 ", %48, %49, %50, %51"
#define RINGGRAD_NAMES_56 RINGGRAD_NAMES_52 ", %52, %53, %54, %55"
#define RINGGRAD_NAMES_60 RINGGRAD_NAMES_56 ", %56, %57, %58, %59"
#define RINGGRAD_NAMES_64 RINGGRAD_NAMES_60 ", %60, %61, %62, %63"
#define RINGGRAD_NAMES_68 RINGGRAD_NAMES_64 ", %64, %65, %66, %67"
#define RINGGRAD_NAMES_72 RINGGRAD_NAMES_68 ", %68, %69, %70, %71"
#define RINGGRAD_NAMES_76 RINGGRAD_NAMES_72 ", %72, %73, %74, %75"
#define RINGGRAD_NAMES_80 RINGGRAD_NAMES_76 ", %76, %77, %78, %79"
#define RINGGRAD_NAMES_84 RINGGRAD_NAMES_80 ", %80, %81, %82, %83"
#define RINGGRAD_NAMES_88 RINGGRAD_NAMES_84 ", %84, %85, %86, %87"
#define RINGGRAD_NAMES_92 RINGGRAD_NAMES_88 ", %88, %89, %90, %91"
#define RINGGRAD_NAMES_96 RINGGRAD_NAMES_92 ", %92, %93, %94, %95"
#define RINGGRAD_NAMES_100 RINGGRAD_NAMES_96 ", %96, %97, %98, %99"
#define RINGGRAD_NAMES_104 RINGGRAD_NAMES_100 ", %100, %101, %102, %103"
#define RINGGRAD_NAMES_108 RINGGRAD_NAMES_104 ", %104, %105, %106, %107"
#define RINGGRAD_NAMES_112 RINGGRAD_NAMES_108 ", %108, %109, %110, %111"
#define RINGGRAD_NAMES_116 RINGGRAD_NAMES_112 ", %112, %113, %114, %115"
#define RINGGRAD_NAMES_120 RINGGRAD_NAMES_116 ", %116, %117, %118, %119"
#define RINGGRAD_NAMES_124 RINGGRAD_NAMES_120 ", %120, %121, %122, %123"
#define RINGGRAD_NAMES_128 RINGGRAD_NAMES_124 ", %124, %125, %126, %127"
#define RINGGRAD_SUMS_4 RINGGRAD_SUMS_OF(0, 1, 2, 3)
#define RINGGRAD_SUMS_8 RINGGRAD_SUMS_4, RINGGRAD_SUMS_OF(4, 5, 6, 7)
#define RINGGRAD_SUMS_12 RINGGRAD_SUMS_8, RINGGRAD_SUMS_OF(8, 9, 10, 11)
#define RINGGRAD_SUMS_16 RINGGRAD_SUMS_12, RINGGRAD_SUMS_OF(12, 13, 14, 15)
#define RINGGRAD_SUMS_20 RINGGRAD_SUMS_16, RINGGRAD_SUMS_OF(16, 17, 18, 19)
#define RINGGRAD_SUMS_24 RINGGRAD_SUMS_20, RINGGRAD_SUMS_OF(20, 21, 22, 23)
#define RINGGRAD_SUMS_28 RINGGRAD_SUMS_24, RINGGRAD_SUMS_OF(24, 25, 26, 27)
#define RINGGRAD_SUMS_32 RINGGRAD_SUMS_28, RINGGRAD_SUMS_OF(28, 29, 30, 31)
#define RINGGRAD_SUMS_36 RINGGRAD_SUMS_32, RINGGRAD_SUMS_OF(32, 33, 34, 35)
#define RINGGRAD_SUMS_40 RINGGRAD_SUMS_36, RINGGRAD_SUMS_OF(36, 37, 38, 39)
#define RINGGRAD_SUMS_44 RINGGRAD_SUMS_40, RINGGRAD_SUMS_OF(40, 41, 42, 43)
#define RINGGRAD_SUMS_48 RINGGRAD_SUMS_44, RINGGRAD_SUMS_OF(44, 45, 46, 47)
#define RINGGRAD_SUMS_52 RINGGRAD_SUMS_48, RINGGRAD_SUMS_OF(48, 49, 50, 51)
#define RINGGRAD_SUMS_56 RINGGRAD_SUMS_52, RINGGRAD_SUMS_OF(52, 53, 54, 55)
#define RINGGRAD_SUMS_60 RINGGRAD_SUMS_56, RINGGRAD_SUMS_OF(56, 57, 58, 59)
#define RINGGRAD_SUMS_64 RINGGRAD_SUMS_60, RINGGRAD_SUMS_OF(60, 61, 62, 63)
#define RINGGRAD_SUMS_68 RINGGRAD_SUMS_64, RINGGRAD_SUMS_OF(64, 65, 66, 67)
#define RINGGRAD_SUMS_72 RINGGRAD_SUMS_68, RINGGRAD_SUMS_OF(68, 69, 70, 71)
#define RINGGRAD_SUMS_76 RINGGRAD_SUMS_72, RINGGRAD_SUMS_OF(72, 73, 74, 75)
#define RINGGRAD_SUMS_80 RINGGRAD_SUMS_76, RINGGRAD_SUMS_OF(76, 77, 78, 79)
#define RINGGRAD_SUMS_84 RINGGRAD_SUMS_80, RINGGRAD_SUMS_OF(80, 81, 82, 83)
#define RINGGRAD_SUMS_88 RINGGRAD_SUMS_84, RINGGRAD_SUMS_OF(84, 85, 86, 87)
#define RINGGRAD_SUMS_92 RINGGRAD_SUMS_88, RINGGRAD_SUMS_OF(88, 89, 90, 91)
#define RINGGRAD_SUMS_96 RINGGRAD_SUMS_92, RINGGRAD_SUMS_OF(92, 93, 94, 95)
#define RINGGRAD_SUMS_100 RINGGRAD_SUMS_96, RINGGRAD_SUMS_OF(96, 97, 98, 99)
#define RINGGRAD_SUMS_104 RINGGRAD_SUMS_100, RINGGRAD_SUMS_OF(100, 101, 102, 103)
#define RINGGRAD_SUMS_108 RINGGRAD_SUMS_104, RINGGRAD_SUMS_OF(104, 105, 106, 107)
#define RINGGRAD_SUMS_112 RINGGRAD_SUMS_108, RINGGRAD_SUMS_OF(108, 109, 110, 111)
#define RINGGRAD_SUMS_116 RINGGRAD_SUMS_112, RINGGRAD_SUMS_OF(112, 113, 114, 115)
#define RINGGRAD_SUMS_120 RINGGRAD_SUMS_116, RINGGRAD_SUMS_OF(116, 117, 118, 119)
#define RINGGRAD_SUMS_124 RINGGRAD_SUMS_120, RINGGRAD_SUMS_OF(120, 121, 122, 123)
#define RINGGRAD_SUMS_128 RINGGRAD_SUMS_124, RINGGRAD_SUMS_OF(124, 125, 126, 127)
#define RINGGRAD_SUMS_OF(A, B, C, D) "+f"(d[A]), "+f"(d[B]), "+f"(d[C]), "+f"(d[D])

namespace ringgrad::cuda {

// The instruction for operands of T, whose product has N columns. Operands after the accumulators:
// the descriptors (or four words) of a, that of b, `accumulate`, and the transpositions.
#define RINGGRAD_WGMMA(SHAPE, TYPE, R, A, B, P, TRANSPOSED, ...)                               \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" #P ", 0; wgmma.mma_async.sync.aligned." SHAPE \
               ".f32." TYPE "." TYPE " {" RINGGRAD_NAMES_##R "}, " A ", %" #B                  \
                                                             ", p, 1, 1" TRANSPOSED ";}"       \
               : RINGGRAD_SUMS_##R                                                             \
               : __VA_ARGS__)

// R = N / 2; the others are R, R + 1, … R + 7, because the preprocessor cannot add.
#define RINGGRAD_WGMMA_N(N, R, R1, R2, R3, R4, R5, R6)                                             \
  template <class T, int kTransA, int kTransB>                                                     \
  __device__ __forceinline__ void wgmma(float(&d)[R], uint64_t a, uint64_t b, int accumulate) {    \
    if constexpr (std::is_same_v<T, __half>)                                                       \
      RINGGRAD_WGMMA("m64n" #N "k16", "f16", R, "%" #R, R1, R2, ", %" #R3 ", %" #R4, "l"(a),       \
                     "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB));                         \
    else if constexpr (std::is_same_v<T, __nv_bfloat16>)                                           \
      RINGGRAD_WGMMA("m64n" #N "k16", "bf16", R, "%" #R, R1, R2, ", %" #R3 ", %" #R4, "l"(a),      \
                     "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB));                         \
    else                                                                                           \
      RINGGRAD_WGMMA("m64n" #N "k8", "tf32", R, "%" #R, R1, R2, "", "l"(a), "l"(b),                \
                     "r"(accumulate));                                                             \
  }                                                                                                \
  template <class T, int kTransB>                                                                  \
  __device__ __forceinline__ void wgmma(float(&d)[R], const unsigned(&a)[4], uint64_t b,           \
                                        int accumulate) {                                          \
    if constexpr (std::is_same_v<T, __half>)                                                       \
      RINGGRAD_WGMMA("m64n" #N "k16", "f16", R, "{%" #R ", %" #R1 ", %" #R2 ", %" #R3 "}", R4, R5, \
                     ", %" #R6, "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                \
                     "r"(accumulate), "n"(kTransB));                                               \
    else if constexpr (std::is_same_v<T, __nv_bfloat16>)                                           \
      RINGGRAD_WGMMA("m64n" #N "k16", "bf16", R, "{%" #R ", %" #R1 ", %" #R2 ", %" #R3 "}", R4,    \
                     R5, ", %" #R6, "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),            \
                     "r"(accumulate), "n"(kTransB));                                               \
    else                                                                                           \
      RINGGRAD_WGMMA("m64n" #N "k8", "tf32", R, "{%" #R ", %" #R1 ", %" #R2 ", %" #R3 "}", R4, R5, \
                     "", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));     \
  }

RINGGRAD_WGMMA_N(8, 4, 5, 6, 7, 8, 9, 10)
RINGGRAD_WGMMA_N(16, 8, 9, 10, 11, 12, 13, 14)
RINGGRAD_WGMMA_N(24, 12, 13, 14, 15, 16, 17, 18)
RINGGRAD_WGMMA_N(32, 16, 17, 18, 19, 20, 21, 22)
RINGGRAD_WGMMA_N(40, 20, 21, 22, 23, 24, 25, 26)
RINGGRAD_WGMMA_N(48, 24, 25, 26, 27, 28, 29, 30)
RINGGRAD_WGMMA_N(56, 28, 29, 30, 31, 32, 33, 34)
RINGGRAD_WGMMA_N(64, 32, 33, 34, 35, 36, 37, 38)
RINGGRAD_WGMMA_N(72, 36, 37, 38, 39, 40, 41, 42)
RINGGRAD_WGMMA_N(80, 40, 41, 42, 43, 44, 45, 46)
RINGGRAD_WGMMA_N(88, 44, 45, 46, 47, 48, 49, 50)
RINGGRAD_WGMMA_N(96, 48, 49, 50, 51, 52, 53, 54)
RINGGRAD_WGMMA_N(104, 52, 53, 54, 55, 56, 57, 58)
RINGGRAD_WGMMA_N(112, 56, 57, 58, 59, 60, 61, 62)
RINGGRAD_WGMMA_N(120, 60, 61, 62, 63, 64, 65, 66)
RINGGRAD_WGMMA_N(128, 64, 65, 66, 67, 68, 69, 70)
RINGGRAD_WGMMA_N(136, 68, 69, 70, 71, 72, 73, 74)
RINGGRAD_WGMMA_N(144, 72, 73, 74, 75, 76, 77, 78)
RINGGRAD_WGMMA_N(152, 76, 77, 78, 79, 80, 81, 82)
RINGGRAD_WGMMA_N(160, 80, 81, 82, 83, 84, 85, 86)
RINGGRAD_WGMMA_N(168, 84, 85, 86, 87, 88, 89, 90)
RINGGRAD_WGMMA_N(176, 88, 89, 90, 91, 92, 93, 94)
RINGGRAD_WGMMA_N(184, 92, 93, 94, 95, 96, 97, 98)
RINGGRAD_WGMMA_N(192, 96, 97, 98, 99, 100, 101, 102)
RINGGRAD_WGMMA_N(200, 100, 101, 102, 103, 104, 105, 106)
RINGGRAD_WGMMA_N(208, 104, 105, 106, 107, 108, 109, 110)
RINGGRAD_WGMMA_N(216, 108, 109, 110, 111, 112, 113, 114)
RINGGRAD_WGMMA_N(224, 112, 113, 114, 115, 116, 117, 118)
RINGGRAD_WGMMA_N(232, 116, 117, 118, 119, 120, 121, 122)
RINGGRAD_WGMMA_N(240, 120, 121, 122, 123, 124, 125, 126)
RINGGRAD_WGMMA_N(248, 124, 125, 126, 127, 128, 129, 130)
RINGGRAD_WGMMA_N(256, 128, 129, 130, 131, 132, 133, 134)

#undef RINGGRAD_WGMMA_N
#undef RINGGRAD_WGMMA

}  // namespace ringgrad::cuda
