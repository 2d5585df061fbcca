// AMX has eight tiles of 16 rows of 64 bytes, and an instruction that multiplies two of them. This
// file makes them available in C++, both the processor's and an emulation. So kernels made of tiles
// can be tested everywhere, bit for bit.
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

// The tiles that products of bfloat16 numbers use. The default is the processor's if it has tiles
// and the kernel permits them, otherwise none.
enum class Tiles : uint8_t { None, Hardware, Emulated };
Tiles tiles();
void use_tiles(Tiles tiles);  // REQUIRES: Hardware only where why_no_tiles() is empty.
// Returns the reason for the user why this process cannot use the processor's tiles, such as "the
// processor has none". Returns "" if it can.
const std::string& why_no_tiles();

// The operand of ldtilecfg: palette 1, then bytes per row and rows of each tile.
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
// release(), because a thread with tiles in use is switched more slowly.
//
// Inline assembly is used because g++ 12's _tile_loadd does not say that it reads memory and does
// not take a tile's number from a template. So no compiler flag is needed, but callers must know
// that tiles() is Hardware.
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
  // C[m][n] += Σ_k A[m][2k] B[k][2n] + A[m][2k+1] B[k][2n+1]. A and B hold bfloat16 numbers, C
  // float32.
  template <int C, int A, int B>
  static void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
};
#endif

// Computes the same bits as the hardware. Even and odd terms have separate sums, which begin at
// zero in each instruction and are added to each other and then to C. Every operation is one of
// float32, rounded to nearest even; denormal operands and results count as zero. Measured: equal to
// an Emerald Rapids for 3 million random numbers, except for the payloads of NaN.
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
  // The product of two bfloat16 numbers is exact unless it is denormal. So only then would a
  // separate multiplication differ from fma.
  static float fused(float a, float b, float sum) {
    return flush(std::fma(flush(a), flush(b), sum));
  }
};

// Calls body.operator()<Unit>() with the tiles in use. REQUIRES: tiles() is not None.
template <class Body>
void visit_tiles(Body&& body) {
#if defined(__x86_64__)
  if (tiles() == Tiles::Hardware) return body.template operator()<HardwareTiles>();
#endif
  body.template operator()<EmulatedTiles>();
}

}  // namespace ringgrad::amx
