// The parts that convolutions by border tiles share: 3 × 3 filters, stride 1, padding 1, NHWC
// images in float16 or bfloat16.
//
// A tile is some rows of an image with the pixels around them. TMA brings it once, with zeros for
// the pixels outside the image:
//
//      kPitch = width + 2 pixels of 128 bytes (64 channels)
//   ┌───────────────────────────────┐
//   │ row -1: border                │     Output position p = row × kPitch + column. For tap (r, s)
//   │ row  0                        │     all positions together need the pixels from
//   │ …                             │     r × kPitch + s on, in this order. So nine taps are nine
//   │ row kRows: border             │     starting points in the same memory, and nothing is
//   copied. └───────────────────────────────┘
//
// The last two positions of each row mean nothing; the store cuts them off. An implicit product
// reads each pixel nine times through L2, which for 64 filters is too slow for the tensor cores.
//
// Filters are the rows of the product, positions its columns (m64 n136 or n144): then a product
// reads 93 bytes of shared memory per cycle, of 128 possible. Positions as rows would need them
// all.
//
// Tiles are swizzled by 128 bytes. A shifted start relies on the swizzle being a function of the
// address, not of the distance from the start: the emulator assumes it, bench/hopper_lab asks it.
#pragma once

#include "ringgrad/cuda_kernels/hopper/conv2d_columns.cuh"

namespace ringgrad::cuda {

// Adds the word's two elements to the sums.
template <class T>
__device__ __forceinline__ void add_packed(float& low, float& high, unsigned word) {
  const auto pair = *reinterpret_cast<const Vector<T, 2>*>(&word);
  low += widen(pair.element[0]);
  high += widen(pair.element[1]);
}

// A warpgroup's products complete warp by warp, so each warp releases what it has read.
inline constexpr int kWarpsOfGroup = 4;

inline constexpr int kPixelBytes = 128;              // 64 channels
inline constexpr int kBorderTap = 64 * kPixelBytes;  // a tap's weights, 64 filters × 64 channels
inline constexpr int kBorderThreads = 3 * 128;       // a producer and two consumer groups

template <int kPitch_, int kRows_>
struct BorderTile {
  static constexpr int kPitch = kPitch_;
  static constexpr int kRows = kRows_;
  static constexpr int kWidth = kPitch - 2;  // the widest image
  static constexpr int kPositions = kRows * kPitch;
  static constexpr int kHalf = kPositions / 2;  // columns of a product
  static constexpr int kLoaded = (kRows + 2) * kPitch * kPixelBytes;
  // The last tap reads two pixels beyond, for positions that mean nothing.
  static constexpr int kBytes = (kLoaded + 2 * kPixelBytes + 1023) / 1024 * 1024;
  static constexpr int kStored = kPositions * kPixelBytes;
  static_assert(kHalf % 8 == 0 && kPositions % 16 == 0, "products have multiples of 8 columns");

  static __device__ __forceinline__ int start_of_tap(int tap) {
    return (tap / 3 * kPitch + tap % 3) * kPixelBytes;
  }
};

// The tiles of all images, numbered row by row.
struct BorderTiles {
  int images;
  int rows;  // of tiles, in an image
  int height;
  int width;
  __host__ __device__ int count() const { return images * rows; }
};

// Maps of the operands. y is the result: dx if it is a gradient, and then x is dy.
struct BorderMaps {
  TensorMap x;      // [N, H, W, C]: boxes of [kRows + 2, kPitch, 64]
  TensorMap w;      // [K, 9, C]: boxes of [64, 1, 64]
  TensorMap y;      // [N, H, W, K]: boxes of [kRows, kPitch, 64]
  TensorMap added;  // as y; only if there is an addend
};

// Multiplies one tap of 64 channels: sums += weights × the tile from the tap's start on. Forward
// the weights are [filter][channel], along the sum. For a gradient they are the same memory, read
// as [summed filter][channel] and therefore transposed.
template <class T, class Tile, bool kGradient>
__device__ __forceinline__ void multiply_tap(float (&sums)[2][Tile::kHalf / 2],
                                             const unsigned char* weights,
                                             const unsigned char* start, bool add) {
  constexpr int kStepA = kGradient ? 16 * kPixelBytes / 16 : 2;  // 16 of the sum, in 16 bytes
  const uint64_t a = matrix_descriptor(weights, 16, 8 * kPixelBytes, Swizzle::Bytes128);
  const uint64_t b = matrix_descriptor(start, 16, 8 * kPixelBytes, Swizzle::Bytes128);
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      wgmma<T, kGradient, false>(sums[half], a + k * kStepA,
                                 b + k * 2 + half * Tile::kHalf * kPixelBytes / 16, add || k > 0);
}

// Writes a group's sums, [64 filters][positions], to `tile` as T [positions][64 filters], as the
// store expects them. Adds the bias of this thread's two filters, and what is in the tile if
// `adds`.
template <class T, class Tile>
__device__ __forceinline__ void write_positions(unsigned char* tile,
                                                const float (&sums)[2][Tile::kHalf / 2],
                                                const float (&bias)[2], bool adds) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int pair = 0; pair < Tile::kPositions / 16; ++pair) {
    // Matrices of 8 positions × 8 filters: this warp's filters 0-7 and 8-15, and the same of the
    // next 8 positions.
    unsigned char* const row =
        tile + swizzled_128(pair * 16 + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2);
    unsigned added[4] = {};
    if (adds) ldmatrix_x4<true>(added, reinterpret_cast<const T*>(row));
    unsigned words[4];
#pragma unroll
    for (int matrix = 0; matrix < 4; ++matrix) {
      const int eight = pair * 2 + matrix / 2;
      const float* const d = sums[eight / (Tile::kHalf / 8)] + eight % (Tile::kHalf / 8) * 4;
      float low = d[matrix % 2 * 2] + bias[matrix % 2];
      float high = d[matrix % 2 * 2 + 1] + bias[matrix % 2];
      if (adds) add_packed<T>(low, high, added[matrix]);
      words[matrix] = pack<T>(low, high);
    }
    stmatrix_x4<true>(row, words[0], words[1], words[2], words[3]);
  }
}

// Adds this warp's quarter of a tile's rows, from `row` of the image on.
template <class Tile, class T, bool kGradient>
__device__ __forceinline__ void add_positions(Columns<T, kGradient>& columns,
                                              const ColumnSums<T>& sums, unsigned char* tile,
                                              const BorderTiles& tiles, int image, int row) {
  constexpr int kQuarter = Tile::kRows / 4 * Tile::kWidth;
  constexpr int kRows = Columns<T, kGradient>::kRows;
  static_assert(kQuarter % kRows == 0);
  const int first = static_cast<int>(threadIdx.x) / 32 % 4 * (Tile::kRows / 4);
#pragma unroll 1
  for (int begin = 0; begin < kQuarter; begin += kRows)
    columns.add(sums, tile, [&](int i) -> SummedRow {
      const int h = first + (begin + i) / Tile::kWidth;
      const int w = (begin + i) % Tile::kWidth;
      const bool inside = row + h < tiles.height && w < tiles.width;
      return {h * Tile::kPitch + w,
              inside ? (image * tiles.height + row + h) * tiles.width + w : -1};
    });
}

}  // namespace ringgrad::cuda
