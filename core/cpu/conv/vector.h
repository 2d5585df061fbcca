// Vectors of the width of the compiler's target, by GCC's vector extensions: one source for
// AVX-512, AVX2, SSE2 and NEON. A block of 16 channels is 16 / kLanes vectors. All other
// differences between instruction sets are constants here. No other kernel asks the compiler for
// its target.
#pragma once

#include <cstdint>
#include <utility>

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "ringgrad/core/cpu/conv/blocked_images.h"

namespace ringgrad::conv {

// kIsa is the name of the instruction set, as in RINGGRAD_ISA.
#if defined(__AVX512BF16__)
inline constexpr const char* kIsa = "v4_bf16";
#elif defined(__AVX512F__)
inline constexpr const char* kIsa = "v4";
#elif defined(__AVX2__)
inline constexpr const char* kIsa = "v3";
#elif defined(__SSE4_2__)
inline constexpr const char* kIsa = "v2";
#else
inline constexpr const char* kIsa = "baseline";
#endif

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
inline constexpr int kRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kLanes = 8;
inline constexpr int kRegisters = 16;
#elif defined(__aarch64__)
inline constexpr int kLanes = 4;
inline constexpr int kRegisters = 32;
#else
inline constexpr int kLanes = 4;
inline constexpr int kRegisters = 16;
#endif

using Vector = float __attribute__((vector_size(kLanes * sizeof(float)), may_alias));
// The attributes stand before the `=`, because clang ignores aligned(4) after a type.
using UnalignedVector __attribute__((vector_size(kLanes * sizeof(float)), may_alias, aligned(4))) =
    float;
static_assert(alignof(UnalignedVector) == 4);
using UnalignedIntegers
    __attribute__((vector_size(kLanes * sizeof(int32_t)), may_alias, aligned(4))) = int32_t;
using Words = uint32_t __attribute__((vector_size(kLanes * sizeof(uint32_t)), may_alias));

// Loops over the registers of a tile must be unrolled before register allocation.
#define RINGGRAD_UNROLL _Pragma("GCC unroll 16")

inline Vector load(const float* p) { return *reinterpret_cast<const UnalignedVector*>(p); }
inline void store(float* p, Vector v) { *reinterpret_cast<UnalignedVector*>(p) = v; }
// Forces a value that is used several times to be loaded once. g++ 12 prefers to load it again each
// time rather than to spend a register. But a core that multiplies twice in a cycle loads only two
// or three times.
template <class V>
inline V in_register(V v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#endif
  return v;
}
inline Vector relu(Vector v) { return v < 0.0f ? Vector{} : v; }  // NaN stays NaN

// positive_lanes() returns a bit for each positive lane, the lowest for the first. keep_lanes()
// returns v in lanes whose bit is set, and 0 elsewhere.
inline uint32_t positive_lanes(Vector v) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(v), _mm512_setzero_ps(), _CMP_GT_OQ);
#elif defined(__AVX__)
  return __builtin_ia32_movmskps256(reinterpret_cast<Vector>(v > 0.0f));
#elif defined(__SSE__)
  return __builtin_ia32_movmskps(reinterpret_cast<Vector>(v > 0.0f));
#else
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(v[i] > 0) << i;
  return bits;
#endif
}
inline Vector keep_lanes(uint32_t bits, Vector v) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vector>(_mm512_maskz_mov_ps(bits, reinterpret_cast<__m512>(v)));
#else
  Words lanes;
  for (int i = 0; i < kLanes; ++i) lanes[i] = 1u << i;
  return (lanes & bits) != 0 ? v : Vector{};
#endif
}

// bfloat16 images are widened on load and rounded on store (to nearest, ties to even; NaN stays
// NaN).
using Halves __attribute__((vector_size(kLanes * sizeof(uint16_t)), may_alias, aligned(2))) =
    uint16_t;
using TwoHalves = uint16_t __attribute__((vector_size(2 * kLanes * sizeof(uint16_t)), may_alias));
// Intrinsics are used because g++ 12 would widen each half of a register alone. They have a mask,
// because g++ warns of the undefined value in those without.
inline Words widen(Halves v) {
#if defined(__AVX512F__)
  return reinterpret_cast<Words>(_mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(v)));
#else
  return __builtin_convertvector(v, Words);
#endif
}
// Processors that multiply bfloat16 numbers can move any halves of words to any place in one
// instruction.
inline Vector as_upper_halves(Halves v) {
#if defined(__AVX512BF16__)
  constexpr TwoHalves from = {0, 0, 0, 1, 0, 2,  0, 3,  0, 4,  0, 5,  0, 6,  0, 7,
                              0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15};
  return reinterpret_cast<Vector>(
      _mm512_maskz_permutexvar_epi16(0xaaaaaaaa, reinterpret_cast<__m512i>(from),
                                     _mm512_castsi256_si512(reinterpret_cast<__m256i>(v))));
#else
  return reinterpret_cast<Vector>(widen(v) << 16);
#endif
}
inline Vector load(const bfloat16* p) {
  return as_upper_halves(*reinterpret_cast<const Halves*>(p));
}

// load(p), or zeros if it is not wanted; nothing is read then. With masks this needs no branch and
// costs as much as load().
#if defined(__AVX512F__)
inline constexpr bool kLoadsByMask = true;
inline Vector load_if(bool wanted, const float* p) {
  return reinterpret_cast<Vector>(_mm512_maskz_loadu_ps(wanted ? 0xffff : 0, p));
}
inline Vector load_if(bool wanted, const bfloat16* p) {
  return as_upper_halves(
      reinterpret_cast<Halves>(_mm256_maskz_loadu_epi16(wanted ? 0xffff : 0, p)));
}
#else
inline constexpr bool kLoadsByMask = false;
template <class T>
Vector load_if(bool wanted, const T* p) {
  return wanted ? load(p) : Vector{};
}
#endif

inline Halves round_exactly(Vector v) {
  const Words bits = reinterpret_cast<Words>(v);
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Words quiet = (bits >> 16) | 0x40;
  return __builtin_convertvector((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded, Halves);
}
// Rounds in one instruction if there is one. Like products of pairs, it treats numbers below 2^-126
// as zeros.
inline Halves round_to_bfloat16(Vector v) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<Halves>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(v)));
#else
  return round_exactly(v);
#endif
}
inline void store(bfloat16* p, Vector v) { *reinterpret_cast<Halves*>(p) = round_to_bfloat16(v); }
// Stores two vectors. If there is such an instruction, both are rounded at the cost of one.
inline void store_two(float* p, Vector v, float* q, Vector w) { store(p, v), store(q, w); }
#if defined(__AVX512BF16__)
inline TwoHalves round_two(Vector first, Vector second) {
  return reinterpret_cast<TwoHalves>(
      _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first)));
}
inline void store_two(bfloat16* p, Vector v, bfloat16* q, Vector w) {
  const TwoHalves two = round_two(v, w);
  *reinterpret_cast<Halves*>(p) =
      __builtin_shufflevector(two, two, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  *reinterpret_cast<Halves*>(q) = __builtin_shufflevector(two, two, 16, 17, 18, 19, 20, 21, 22, 23,
                                                          24, 25, 26, 27, 28, 29, 30, 31);
}
#else
inline void store_two(bfloat16* p, Vector v, bfloat16* q, Vector w) { store(p, v), store(q, w); }
#endif

inline Vector load(const float16* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vector>(_mm512_maskz_cvtph_ps(
      0xffff, reinterpret_cast<__m256i>(*reinterpret_cast<const Halves*>(p))));
#elif defined(__F16C__)
  return reinterpret_cast<Vector>(
      _mm256_cvtph_ps(reinterpret_cast<__m128i>(*reinterpret_cast<const Halves*>(p))));
#else
  Vector v;
  for (int i = 0; i < kLanes; ++i) v[i] = p[i];
  return v;
#endif
}
inline void store(float16* p, Vector v) {
#if defined(__AVX512F__)
  *reinterpret_cast<Halves*>(p) = reinterpret_cast<Halves>(
      _mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  *reinterpret_cast<Halves*>(p) = reinterpret_cast<Halves>(
      _mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < kLanes; ++i) p[i] = v[i];
#endif
}

// y = x for n numbers, where one type is float and the other has 16 bits. The result is the same on
// every processor.
template <class Y, class X>
void convert(Y* y, const X* x, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vector v = load(x + i);
    if constexpr (std::is_same_v<Y, bfloat16>)
      *reinterpret_cast<Halves*>(y + i) = round_exactly(v);
    else
      store(y + i, v);
  }
  for (; i < n; ++i) y[i] = static_cast<Y>(static_cast<float>(x[i]));
}

// Words of pairs (first[i], second[i]) of bfloat16 numbers. They are neighbours in a reduction, and
// the processor multiplies two at a time.
inline Vector pair_of(Halves first, Halves second) {
  return reinterpret_cast<Vector>(widen(first) | widen(second) << 16);
}
inline Vector pair_of(Vector first, Vector second) {
#if defined(__AVX512BF16__)
  constexpr TwoHalves from = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                              8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return reinterpret_cast<Vector>(
      _mm512_maskz_permutexvar_epi16(0xffffffff, reinterpret_cast<__m512i>(from),
                                     reinterpret_cast<__m512i>(round_two(first, second))));
#else
  return pair_of(round_to_bfloat16(first), round_to_bfloat16(second));
#endif
}

// True if the processor multiplies pairs. RINGGRAD_EMULATE_BFLOAT16 serves to measure on any
// processor how products of bfloat16 numbers affect accuracy.
#if defined(__AVX512BF16__) || defined(RINGGRAD_EMULATE_BFLOAT16)
inline constexpr bool kMultipliesPairs = true;
#else
inline constexpr bool kMultipliesPairs = false;
#endif
// Returns sum + the dot products of the pair at `a`, which serves all lanes, with the pairs in b.
// The instruction broadcasts the pair itself. g++ 12 would broadcast it separately, which Zen 4 can
// do only three times in four cycles: matrices of 16 columns would take 1.3 times as long.
inline Vector add_pair_products(Vector sum, const float* a, Vector b) {
#if defined(__AVX512BF16__)
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(b), "m"(*a));
  return sum;
#else
  using Word __attribute__((may_alias)) = uint32_t;
  const Words left = Words{} + *reinterpret_cast<const Word*>(a),
              right = reinterpret_cast<Words>(b);
  const auto first = [](Words pair) { return reinterpret_cast<Vector>(pair << 16); };
  const auto second = [](Words pair) { return reinterpret_cast<Vector>(pair & 0xffff0000); };
  return sum + second(left) * second(right) + first(left) * first(right);
#endif
}

// Pairs of 16-bit integers are multiplied as fast, and summed exactly.
using Integers = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t)), may_alias));
// Returns true if a comparison holds in every lane.
inline bool all(Integers compared) {
#if defined(__AVX512F__)
  const __m512i lanes = reinterpret_cast<__m512i>(compared);
  return _mm512_test_epi32_mask(lanes, lanes) == 0xffff;
#else
  int32_t every = -1;
  for (int i = 0; i < kLanes; ++i) every &= compared[i];
  return every != 0;
#endif
}
// Returns words of pairs (first[i] scale[i], second[i] scale[i]), rounded to integers. REQUIRES:
// they are below 2^15.
inline Vector integer_pair_of(Vector first, Vector second, Vector scale) {
  // Adding this to a number leaves the nearest integer in the lowest bits.
  constexpr float kRound = 3 << 22;
  const Words low = reinterpret_cast<Words>(first * scale + kRound);
  const Words high = reinterpret_cast<Words>(second * scale + kRound);
  return reinterpret_cast<Vector>((low & 0xffff) | high << 16);
}
inline Integers add_pair_products(Integers sum, const float* a, Vector b) {
#if defined(__AVX512VNNI__)
  asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(b), "m"(*a));
  return sum;
#else
  using Word __attribute__((may_alias)) = int32_t;
  const Integers left = Integers{} + *reinterpret_cast<const Word*>(a),
                 right = reinterpret_cast<Integers>(b);
  return sum + (left >> 16) * (right >> 16) + (left << 16 >> 16) * (right << 16 >> 16);
#endif
}

// A store that bypasses the caches, for outputs that will not be in the caches when they are read.
// It pays from two million numbers on (-5 % for convolutions of 64 channels at 32 x 32); from one
// million on, a step of the MNIST network takes 3 % longer. It is used only if a pixel is one
// vector. With shorter vectors a kernel writes all first halves, then all second ones, and each
// half of a cache line would travel alone (AVX2, ResNet-20: steps took 1 to 10 % longer). REQUIRES:
// p is aligned to a cache line; the same thread calls stream_fence() before others read.
template <class T>
bool should_stream(const T* p, int64_t count) {
  return kLanes == kChannelBlock && count >= (2 << 20) && reinterpret_cast<uintptr_t>(p) % 64 == 0;
}
inline void stream(float* p, Vector v) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, reinterpret_cast<__m512>(v));
#else
  store(p, v);
#endif
}
inline void stream(bfloat16* p, Vector v) {
#if defined(__AVX512F__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p),
                      reinterpret_cast<__m256i>(round_to_bfloat16(v)));
#else
  store(p, v);
#endif
}
template <class T>
void store_or_stream(T* p, Vector v, bool streams) {
  if (streams)
    stream(p, v);
  else
    store(p, v);
}
inline void stream_fence() {
#if defined(__AVX512F__)
  __builtin_ia32_sfence();
#endif
}

// Prefetches a cache line into the first-level cache, into the second level for later use, or for
// writing. (g++ 12 deletes __builtin_prefetch in loops that it considers empty.)
#if defined(__x86_64__)
#define RINGGRAD_PREFETCH(instruction, write, level) \
  asm volatile(instruction " %0" : : "m"(*static_cast<const char*>(p)))
#else
#define RINGGRAD_PREFETCH(instruction, write, level) __builtin_prefetch(p, write, level)
#endif
inline void prefetch(const void* p) { RINGGRAD_PREFETCH("prefetcht0", 0, 3); }
inline void prefetch_for_later(const void* p) { RINGGRAD_PREFETCH("prefetcht1", 0, 2); }
inline void prefetch_for_writing(void* p) { RINGGRAD_PREFETCH("prefetchw", 1, 3); }
#undef RINGGRAD_PREFETCH

// One stage of a transposition by butterflies: exchanges the off-diagonal D x D blocks of rows i
// and i + D.
template <int D, int... I>
inline void exchange(Vector& a, Vector& b, std::integer_sequence<int, I...>) {
  const Vector x = a;
  const Vector y = b;
  a = __builtin_shufflevector(x, y, ((I & D) ? kLanes + I - D : I)...);
  b = __builtin_shufflevector(x, y, ((I & D) ? kLanes + I : I + D)...);
}
template <int D>
inline void transpose_stage(Vector* rows) {
  if constexpr (D < kLanes) {
    RINGGRAD_UNROLL
    for (int i = 0; i < kLanes; ++i)
      if (!(i & D)) exchange<D>(rows[i], rows[i + D], std::make_integer_sequence<int, kLanes>{});
    transpose_stage<2 * D>(rows);
  }
}

// Loads and stores 32-bit or 16-bit numbers as bits, without conversion.
inline Vector load_bits(const float* p) { return load(p); }
inline void store_bits(float* p, Vector v) { store(p, v); }
inline Vector load_bits(const uint16_t* p) {
  return reinterpret_cast<Vector>(widen(*reinterpret_cast<const Halves*>(p)));
}
inline void store_bits(uint16_t* p, Vector v) {
  *reinterpret_cast<Halves*>(p) = __builtin_convertvector(reinterpret_cast<Words>(v), Halves);
}

// to[j][i] = from[i][j] for a 16 x 16 matrix of float or uint16_t; strides in numbers.
template <class T>
inline void transpose_block(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
  for (int64_t i = 0; i < kChannelBlock; i += kLanes)
    for (int64_t j = 0; j < kChannelBlock; j += kLanes) {
      Vector rows[kLanes];
      RINGGRAD_UNROLL
      for (int r = 0; r < kLanes; ++r) rows[r] = load_bits(from + (i + r) * from_stride + j);
      transpose_stage<1>(rows);
      RINGGRAD_UNROLL
      for (int r = 0; r < kLanes; ++r) store_bits(to + (j + r) * to_stride + i, rows[r]);
    }
}

}  // namespace ringgrad::conv
