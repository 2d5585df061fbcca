// A convolution of 128 channels to 128 filters by border tiles, forward and for dx.
//
// The consumer groups share a tile; each computes 64 filters. The channels are two chunks of 64,
// each a tile of its own. The weights do not fit beside two tiles, so they pass by: for each tap
// and chunk 16 KB, in a ring of three. Two threads of the producer bring tiles and weights.
//
// Predicted for 128 → 128 channels, 16 × 16 pixels, batch 512, on an H200: y 66 µs, dx 70 µs (cuDNN
// measured: 66 and 65 µs). Not yet run on a GPU.
#pragma once

#include "ringgrad/cuda_kernels/hopper/conv2d_border.cuh"

namespace ringgrad::cuda {

using BorderTile128 = BorderTile<18, 16>;
inline constexpr int kBorder128Stages = 2;        // of tiles
inline constexpr int kBorder128WeightStages = 3;  // of a tap's weights for one chunk
inline constexpr size_t kBorder128Shared =
    kSharedSlack + kBorder128Stages * 2 * BorderTile128::kBytes +
    kBorder128WeightStages * 2 * kBorderTap +
    (2 * kBorder128Stages + 2 * kBorder128WeightStages + 2) * sizeof(Mbarrier);

template <class T, bool kGradient>
__global__ void __launch_bounds__(kBorderThreads, 1)
    conv2d_border_128_kernel(BorderTiles tiles, GRID_CONSTANT(BorderMaps) maps, const float* bias,
                             bool adds, ColumnSums<T> column_sums) {
  using Tile = BorderTile128;
  constexpr int kStages = kBorder128Stages;
  constexpr int kWeightStages = kBorder128WeightStages;
  constexpr int kSteps = 9 * 2;  // taps × chunks
  DYNAMIC_SHARED_1024(shared);
  unsigned char* const ring = shared;
  unsigned char* const weights = ring + kStages * 2 * Tile::kBytes;
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(weights + kWeightStages * 2 * kBorderTap);
  Mbarrier* const empty = full + kStages;
  Mbarrier* const weights_full = empty + kStages;
  Mbarrier* const weights_empty = weights_full + kWeightStages;
  Mbarrier* const added_full = weights_empty + kWeightStages;  // one for each group

  const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int first = static_cast<int>(blockIdx.x);
  const int step = static_cast<int>(gridDim.x);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], 2);
    }
    for (int s = 0; s < kWeightStages; ++s) {
      mbarrier_init(&weights_full[s], 1);
      mbarrier_init(&weights_empty[s], 2 * kWarpsOfGroup);
    }
    for (int b = 0; b < 2; ++b) mbarrier_init(&added_full[b], 1);
    fence_mbarrier_init();
  }
  __syncthreads();

  if (group == 0) {  // the producer
    set_max_registers_down<40>();
    int stage = 0;
    int phase = 0;
    if (thread == 0) {
      for (int i = first; i < tiles.count(); i += step) {
        mbarrier_wait(&empty[stage], phase ^ 1);
        mbarrier_arrive_expect_tx(&full[stage], 2 * Tile::kLoaded);
        for (int chunk = 0; chunk < 2; ++chunk)
          tma_load(ring + (stage * 2 + chunk) * Tile::kBytes, &maps.x, &full[stage], chunk * 64, -1,
                   i % tiles.rows * Tile::kRows - 1, i / tiles.rows);
        if (++stage == kStages) {
          stage = 0;
          phase ^= 1;
        }
      }
    } else if (thread == 32) {
      for (int i = first; i < tiles.count(); i += step)
        for (int s = 0; s < kSteps; ++s) {
          const int tap = s / 2;
          const int chunk = s % 2 * 64;
          mbarrier_wait(&weights_empty[stage], phase ^ 1);
          mbarrier_arrive_expect_tx(&weights_full[stage], 2 * kBorderTap);
          for (int half = 0; half < 2; ++half) {  // of the filters; of the channels for dx
            unsigned char* const to = weights + (stage * 2 + half) * kBorderTap;
            if (kGradient)
              tma_load(to, &maps.w, &weights_full[stage], half * 64, 8 - tap, chunk);
            else
              tma_load(to, &maps.w, &weights_full[stage], chunk, tap, half * 64);
          }
          if (++stage == kWeightStages) {
            stage = 0;
            phase ^= 1;
          }
        }
    }
    return;
  }

  set_max_registers_up<232>();
  const int consumer = group - 1;
  const int filter = consumer * 64 + thread / 32 * 16 + thread % 32 / 4;
  const float of_filters[2] = {bias ? bias[filter] : 0, bias ? bias[filter + 8] : 0};
  Columns<T, kGradient> columns(column_sums, consumer * 64);
  int stage = 0;
  int phase = 0;
  int weight_stage = 0;
  int weight_phase = 0;
  int added_phase = 0;
  for (int i = first; i < tiles.count(); i += step) {
    const int row = i % tiles.rows * Tile::kRows;
    float sums[2][Tile::kHalf / 2] = {};  // so that their registers are free between tiles
    mbarrier_wait(&full[stage], phase);
    int last = 0;
#pragma unroll 1
    for (int s = 0; s < kSteps; ++s) {
      mbarrier_wait(&weights_full[weight_stage], weight_phase);
      wgmma_keep(sums[0]);
      wgmma_keep(sums[1]);
      wgmma_fence();
      multiply_tap<T, Tile, kGradient>(
          sums, weights + (weight_stage * 2 + consumer) * kBorderTap,
          ring + (stage * 2 + s % 2) * Tile::kBytes + Tile::start_of_tap(s / 2), s > 0);
      wgmma_commit();
      wgmma_keep(sums[0]);
      wgmma_keep(sums[1]);
      wgmma_wait<1>();  // the products of the weights before are done
      if (s > 0 && thread % 32 == 0) mbarrier_arrive(&weights_empty[last]);
      last = weight_stage;
      if (++weight_stage == kWeightStages) {
        weight_stage = 0;
        weight_phase ^= 1;
      }
    }
    wgmma_wait<0>();
    wgmma_keep(sums[0]);
    wgmma_keep(sums[1]);
    if (thread % 32 == 0) mbarrier_arrive(&weights_empty[last]);
    named_barrier_sync(1, 256);  // both groups' products have read both chunks
    // Chunk 0 of the tile takes the results of group 0, chunk 1 those of group 1.
    unsigned char* const tile = ring + (stage * 2 + consumer) * Tile::kBytes;
    if (adds) {
      if (thread == 0) {
        mbarrier_arrive_expect_tx(&added_full[consumer], Tile::kStored);
        tma_load(tile, &maps.added, &added_full[consumer], consumer * 64, 0, row, i / tiles.rows);
      }
      mbarrier_wait(&added_full[consumer], added_phase);
      added_phase ^= 1;
    }
    write_positions<T, Tile>(tile, sums, of_filters, adds);
    if (column_sums.parts) {
      named_barrier_sync(2 + consumer, 128);
      add_positions<Tile>(columns, column_sums, tile, tiles, i / tiles.rows, row);
    }
    fence_proxy_async();
    named_barrier_sync(2 + consumer, 128);
    if (thread == 0) {
      tma_store(&maps.y, tile, consumer * 64, 0, row, i / tiles.rows);
      bulk_commit();
      bulk_wait_read<0>();
      mbarrier_arrive(&empty[stage]);
    }
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
  if (thread == 0) bulk_wait<0>();
  columns.store(column_sums, first * 4 + thread / 32);
}

}  // namespace ringgrad::cuda
