// AMX: eight tiles of 16 rows of 64 bytes, and an instruction that multiplies two of them. Here
// from C++, as the processor does it, and emulated, so that kernels made of tiles can be tested
// everywhere, bit for bit.
//
// (Intel Architecture Instruction Set Extensions Programming Reference, chapter 3.)
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

namespace ringgrad::amx {

inline constexpr int kTileRows = 16;
inline constexpr int kTileRowBytes = 64;
inline constexpr int kTileBytes = kTileRows * kTileRowBytes;

// Which tiles products of bfloat16 numbers use: the processor's where it has some and the kernel
// lets us, else none.
enum class Tiles : uint8_t { None, Hardware, Emulated };
Tiles tiles();
void use_tiles(Tiles tiles);  // REQUIRES: Hardware only where why_no_tiles() is empty.
// Why this process cannot use the processor's tiles, for people: "the processor has none"; empty
// where it can.
const std::string& why_no_tiles();

// What ldtilecfg reads: palette 1, then bytes per row and rows of each tile.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int64_t row_count, int64_t bytes) {
    rows[tile] = static_cast<uint8_t>(row_count);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};

// The state of tiles belongs to a thread. A unit of work begins with configure() and ends with
// release(): a thread whose tiles are in use is switched more slowly.
//
// Inline assembly, since g++ 12's _tile_loadd neither says that it reads memory nor takes a tile's
// number from a template; so no compiler flag is needed either, and who calls must know that
// tiles() is Hardware.
#if defined(__x86_64__)
struct HardwareTiles {
  static void configure(const TileShapes& shapes) {
    asm volatile("ldtilecfg %0" : : "m"(shapes) : "memory");
  }
  static void release() { asm volatile("tilerelease" : : : "memory"); }
  template <int T>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(T));
  }
  // Rows lie `stride` bytes apart.
  template <int T>
  static void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(T) : "memory");
  }
  template <int T>
  static void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(T) : "memory");
  }
  // C[m][n] += sum over k of A[m][2k] B[k][2n] + A[m][2k+1] B[k][2n+1]; A and B of bfloat16, C of
  // float32 numbers.
  template <int C, int A, int B>
  static void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
};
#endif

// The same bits. Even and odd terms have sums of their own, which begin at zero in each
// instruction, are added to each other and then to C; every operation is one of float32, rounded to
// nearest even, with denormal operands and results taken as zero. (Measured: equal to an Emerald
// Rapids in 3 million random numbers; only payloads of NaN differ.)
struct EmulatedTiles {
  static inline thread_local TileShapes shapes;
  static inline thread_local uint32_t words[8][kTileRows][kTileRowBytes / 4];

  static void configure(const TileShapes& s) {
    shapes = s;
    std::memset(words, 0, sizeof words);
  }
  static void release() {}
  template <int T>
  static void zero() {
    std::memset(words[T], 0, sizeof words[T]);
  }
  template <int T>
  static void load(const void* from, int64_t stride) {
    zero<T>();
    for (int i = 0; i < shapes.rows[T]; ++i)
      std::memcpy(words[T][i], static_cast<const char*>(from) + i * stride, shapes.row_bytes[T]);
  }
  template <int T>
  static void store(void* to, int64_t stride) {
    for (int i = 0; i < shapes.rows[T]; ++i)
      std::memcpy(static_cast<char*>(to) + i * stride, words[T][i], shapes.row_bytes[T]);
  }
  template <int C, int A, int B>
  static void dot() {
    for (int m = 0; m < shapes.rows[C]; ++m)
      for (int n = 0; n < shapes.row_bytes[C] / 4; ++n) {
        float even = 0;
        float odd = 0;
        for (int k = 0; k < shapes.row_bytes[A] / 4; ++k) {
          const uint32_t a = words[A][m][k];
          const uint32_t b = words[B][k][n];
          even = fused(std::bit_cast<float>(a << 16), std::bit_cast<float>(b << 16), even);
          odd = fused(std::bit_cast<float>(a & 0xffff0000u), std::bit_cast<float>(b & 0xffff0000u),
                      odd);
        }
        const float c = flush(std::bit_cast<float>(words[C][m][n]));
        words[C][m][n] = std::bit_cast<uint32_t>(flush(c + flush(even + odd)));
      }
  }

 private:
  static float flush(float v) { return std::fabs(v) < 0x1p-126f ? std::copysign(0.0f, v) : v; }
  // The product of two bfloat16 numbers is exact unless it is denormal: only there would a
  // multiplication differ.
  static float fused(float a, float b, float sum) {
    return flush(std::fma(flush(a), flush(b), sum));
  }
};

// body.operator()<Unit>() with the tiles in use. REQUIRES: there are some.
template <class Body>
void visit_tiles(Body&& body) {
#if defined(__x86_64__)
  if (tiles() == Tiles::Hardware) return body.template operator()<HardwareTiles>();
#endif
  body.template operator()<EmulatedTiles>();
}

}  // namespace ringgrad::amx
