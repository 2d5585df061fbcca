// The gradient of the weights of a convolution of 64 channels to 64 filters, by border tiles.
//
// A block holds the whole result, 64 filters × 9 taps × 64 channels: each of three consumer groups
// has one row of taps. A tile is eight rows of x with their border, and the same rows of dy with
// zeros beside them, so that positions which mean nothing add nothing. The sum runs over positions,
// and tap (r, s) sees position p + r × pitch + s. So each pixel of x and dy is read once. The
// three taps of a row are one product of 64 filters × (3 × 64 channels), whose next 64 columns
// begin one pixel later. If x is infinite at such a position, 0 × ∞ makes a tap NaN; then the
// channel's other taps are not finite anyway.
//
// Predicted for 64 → 64 channels, 32 × 32 pixels, batch 512, on an H200: dw 65 µs (cuDNN measured:
// 98). Not yet run on a GPU.
#pragma once

#include "ringgrad/cuda_kernels/hopper/conv2d_border.cuh"

namespace ringgrad::cuda {

using WeightBorderTile = BorderTile<34, 8>;
inline constexpr int kWeightBorderStages = 2;
inline constexpr int kWeightBorderStage = WeightBorderTile::kBytes + WeightBorderTile::kStored;
inline constexpr int kWeightBorderThreads = 4 * 128;
inline constexpr size_t kWeightBorderShared = kSharedSlack +
                                              kWeightBorderStages * kWeightBorderStage +
                                              2 * kWeightBorderStages * sizeof(Mbarrier);
static_assert(WeightBorderTile::kStored % 1024 == 0, "a tile begins at a multiple of 1024");

struct WeightBorderMaps {
  TensorMap x;   // [N, H, W, 64]: boxes of [kRows + 2, kPitch, 64]
  TensorMap dy;  // [N, H, W, 64]: boxes of [kRows, kPitch, 64]
};

// Block b writes part b of [part][64 filters][9 taps × 64 channels].
template <class T>
__global__ void __launch_bounds__(kWeightBorderThreads, 1)
    conv2d_weight_border_kernel(BorderTiles tiles, GRID_CONSTANT(WeightBorderMaps) maps,
                                float* parts) {
  using Tile = WeightBorderTile;
  constexpr int kStages = kWeightBorderStages;
  DYNAMIC_SHARED_1024(shared);
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared + kStages * kWeightBorderStage);
  Mbarrier* const empty = full + kStages;
  const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int first = static_cast<int>(blockIdx.x);
  const int step = static_cast<int>(gridDim.x);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], 3 * kWarpsOfGroup);
    }
    fence_mbarrier_init();
  }
  // The last products read two pixels after x, with dy's zeros. They must be numbers.
  if (threadIdx.x < kStages * 2 * kPixelBytes / 16) {
    const int stage = static_cast<int>(threadIdx.x) / 16;
    const int chunk = static_cast<int>(threadIdx.x) % 16;
    store_vector<4>(
        reinterpret_cast<unsigned*>(shared + stage * kWeightBorderStage + Tile::kLoaded), chunk,
        Vector<unsigned, 4>{});
    fence_proxy_async();
  }
  __syncthreads();

  int stage = 0;
  int phase = 0;
  if (group == 0) {  // the producer
    set_max_registers_down<40>();
    if (thread != 0) return;
    for (int i = first; i < tiles.count(); i += step) {
      const int row = i % tiles.rows * Tile::kRows;
      unsigned char* const x = shared + stage * kWeightBorderStage;
      mbarrier_wait(&empty[stage], phase ^ 1);
      mbarrier_arrive_expect_tx(&full[stage], Tile::kLoaded + Tile::kStored);
      tma_load(x, &maps.x, &full[stage], 0, -1, row - 1, i / tiles.rows);
      tma_load(x + Tile::kBytes, &maps.dy, &full[stage], 0, 0, row, i / tiles.rows);
      if (++stage == kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
    return;
  }

  set_max_registers_up<152>();
  const int tap_row = group - 1;
  float sums[96];
  for (int i = first; i < tiles.count(); i += step) {
    mbarrier_wait(&full[stage], phase);
    const unsigned char* const x = shared + stage * kWeightBorderStage;
    const uint64_t a = matrix_descriptor(x + Tile::kBytes, 16, 8 * kPixelBytes, Swizzle::Bytes128);
    const uint64_t b = matrix_descriptor(x + Tile::start_of_tap(tap_row * 3), kPixelBytes,
                                         8 * kPixelBytes, Swizzle::Bytes128);
    constexpr int kStep = 16 * kPixelBytes / 16;  // 16 positions, in 16 bytes
    wgmma_keep(sums);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Tile::kPositions / 16; ++k)
      wgmma<T, true, true>(sums, a + k * kStep, b + k * kStep, i > first || k > 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_keep(sums);
    if (thread % 32 == 0) mbarrier_arrive(&empty[stage]);
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }

  const int lane = thread % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int filter = thread / 32 * 16 + half * 8 + lane / 4;
    float* const to =
        parts + ((static_cast<int64_t>(blockIdx.x) * 64 + filter) * 9 + tap_row * 3) * 64;
#pragma unroll
    for (int eight = 0; eight < 24; ++eight)
      store_vector<2>(
          to + eight * 8 + lane % 4 * 2, 0,
          Vector<float, 2>{{sums[eight * 4 + half * 2], sums[eight * 4 + half * 2 + 1]}});
  }
}

}  // namespace ringgrad::cuda
