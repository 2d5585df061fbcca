// The gradient of a convolution's weights, straight from NHWC images: a product of filters × (taps
// × channels), summed over the output pixels, in float16 or bfloat16 with float32 sums.
//
// Both operands have the pixels as rows in memory, so both are read transposed. dy is read as it
// lies; of x TMA's im2col brings the pixels that one tap sees. A block has 128 filters (64 for
// each of two consumer groups) and kWide columns of 64 channels of a tap. It sums a part of the
// pixels; conv2d.cu adds the parts in order. Number and size of the parts follow from the shapes
// alone, so that every card computes the same bits.
//
// Predicted dw of ResNet-18's layers, batch 512, on an H200 (cuDNN measured, bracketed: estimated):
//   128 → 128, 16 × 16: 66 µs (73)   256 → 256, 8 × 8: 66 (77)   512 → 512, 4 × 4: 65 (87)
//   64 → 128, stride 2: 39 (52)      256 → 512, stride 2: 41 ((52))
// Not yet run on a GPU.
#pragma once

#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/hopper/conv2d_border.cuh"

namespace ringgrad::cuda {

struct WeightProblem {
  int filters;
  int channels;
  int taps;
  int filter_width;
  int filter_tiles;
  int column_tiles;
  int splits;
  int slices;  // of 64 pixels, in all
  int stride_h;
  int stride_w;
  int padding_h;
  int padding_w;
  int dilation_h;
  int dilation_w;
  Divider by_y_height;
  Divider by_y_width;
  int chunks() const { return (channels + 63) / 64; }
};

struct WeightMaps {
  TensorMap dy;  // [pixels, K]: boxes of [64, 64]
  TensorMap x;   // im2col: 64 pixels × 64 channels
};

inline constexpr int kSliceTile = 64 * kPixelBytes;  // 64 pixels × 64 filters, or channels

template <int kWide>
struct WeightTile {
  static constexpr int kStages = kWide == 4 ? 4 : 5;
  static constexpr int kStage = (2 + kWide) * kSliceTile;
  static constexpr size_t kShared =
      kSharedSlack + kStages * kStage + 2 * kStages * sizeof(Mbarrier);
};

// Writes parts [split][filter][tap × channel].
template <class T, int kWide>
__global__ void __launch_bounds__(kBorderThreads, 1)
    conv2d_weight_kernel(GRID_CONSTANT(WeightProblem) p, GRID_CONSTANT(WeightMaps) maps,
                         float* parts) {
  using Tile = WeightTile<kWide>;
  constexpr int kStages = Tile::kStages;
  DYNAMIC_SHARED_1024(shared);
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared + kStages * Tile::kStage);
  Mbarrier* const empty = full + kStages;
  const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  const int thread = static_cast<int>(threadIdx.x) % 128;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], 2 * kWarpsOfGroup);
    }
    fence_mbarrier_init();
  }
  __syncthreads();

  // Blocks of one time have the same pixels.
  int i = static_cast<int>(blockIdx.x);
  const int first_filter = i % p.filter_tiles * 128;
  i /= p.filter_tiles;
  const int first_column = i % p.column_tiles * kWide;
  const int split = i / p.column_tiles;
  const int first = static_cast<int>(int64_t{p.slices} * split / p.splits);
  const int last = static_cast<int>(int64_t{p.slices} * (split + 1) / p.splits);
  const int chunks = (p.channels + 63) / 64;

  if (group == 0) {  // the producer
    set_max_registers_down<40>();
    if (thread != 0) return;
    int stage = 0;
    int phase = 0;
    for (int slice = first; slice < last; ++slice) {
      const auto [row, w] = p.by_y_width(static_cast<unsigned>(slice * 64));
      const auto [image, h] = p.by_y_height(row);
      mbarrier_wait(&empty[stage], phase ^ 1);
      unsigned char* const to = shared + stage * Tile::kStage;
      mbarrier_arrive_expect_tx(&full[stage], Tile::kStage);
      for (int half = 0; half < 2; ++half)
        tma_load(to + half * kSliceTile, &maps.dy, &full[stage], first_filter + half * 64,
                 slice * 64);
      for (int j = 0; j < kWide; ++j) {
        // Columns after the last have channels after the last, which are zeros.
        const int column = first_column + j;
        const int tap = min(column / chunks, p.taps - 1);
        const int channel = (column - tap * chunks) * 64;
        tma_load_im2col(to + (2 + j) * kSliceTile, &maps.x, &full[stage], channel,
                        static_cast<int>(w) * p.stride_w - p.padding_w,
                        static_cast<int>(h) * p.stride_h - p.padding_h, static_cast<int>(image),
                        static_cast<uint16_t>(tap % p.filter_width * p.dilation_w),
                        static_cast<uint16_t>(tap / p.filter_width * p.dilation_h));
      }
      if (++stage == kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
    return;
  }

  set_max_registers_up<232>();
  const int consumer = group - 1;
  float sums[kWide * 32];
  int stage = 0;
  int phase = 0;
  int before = 0;
  for (int slice = first; slice < last; ++slice) {
    mbarrier_wait(&full[stage], phase);
    const unsigned char* const at = shared + stage * Tile::kStage;
    const uint64_t a = matrix_descriptor(at + consumer * kSliceTile, kSliceTile, 8 * kPixelBytes,
                                         Swizzle::Bytes128);
    const uint64_t b =
        matrix_descriptor(at + 2 * kSliceTile, kSliceTile, 8 * kPixelBytes, Swizzle::Bytes128);
    constexpr int kStep = 16 * kPixelBytes / 16;  // 16 pixels, in 16 bytes
    wgmma_keep(sums);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      wgmma<T, true, true>(sums, a + k * kStep, b + k * kStep, slice > first || k > 0);
    wgmma_commit();
    wgmma_keep(sums);
    wgmma_wait<1>();  // the slice before has been multiplied
    if (slice > first && thread % 32 == 0) mbarrier_arrive(&empty[before]);
    before = stage;
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
  wgmma_wait<0>();
  wgmma_keep(sums);

  const int lane = thread % 32;
  const int columns = p.taps * p.channels;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int filter = first_filter + consumer * 64 + thread / 32 * 16 + half * 8 + lane / 4;
    if (filter >= p.filters) continue;
    float* const to = parts + (int64_t{split} * p.filters + filter) * columns;
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      const int tap = (first_column + j) / chunks;
      const int channel = (first_column + j) % chunks * 64 + lane % 4 * 2;
      if (tap >= p.taps) continue;
#pragma unroll
      for (int eight = 0; eight < 8; ++eight)
        if (channel + eight * 8 < p.channels) {
          const float* const d = sums + (j * 8 + eight) * 4 + half * 2;
          store_vector<2>(to + tap * p.channels + channel + eight * 8, 0,
                          Vector<float, 2>{{d[0], d[1]}});
        }
    }
  }
}

}  // namespace ringgrad::cuda
