// A convolution as a matrix product whose patches TMA gathers (im2col): output pixels × filters,
// forward in any strides, and dx for strides 1 and 2. NHWC images and KRSC weights in float16 or
// bfloat16.
//
// A row of the product is an output pixel. For each tap and each 64 channels TMA brings the pixels
// that the rows of a tile see there, in the order of the rows, with zeros outside the image. It
// also brings 64 channels' weights of each column. A block multiplies them like any product: a
// producer keeps a ring of three stages full, two consumer groups multiply half of the rows each.
// The two blocks of a cluster have neighbouring rows and the same columns; each brings half of the
// weights for both.
//
// dx with stride 2: a pixel of dx is seen through the taps of its own parity only. So dx has four
// parts, each a convolution of dy with stride 1 and 1, 2, 2 or 4 of nine taps. With stride 1 there
// is one part with all taps mirrored. The weights are those of forward, read transposed.
//
// Predicted for ResNet-18's layers, batch 512, on an H200 (cuDNN measured, bracketed: estimated):
//   256 → 256, 8 × 8: y 63 (62), dx 65 µs (62)       512 → 512, 4 × 4: y 61 (93), dx 63 µs (70)
//   64 → 128, stride 2: y 37 (44), dx 50 µs (70)     1 × 1, stride 2, all three: y 9, dx 12 µs
//   ((33), (40))
// Not yet run on a GPU.
#pragma once

#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/hopper/conv2d_border.cuh"

namespace ringgrad::cuda {

// Output pixels (i, j) of every image that are computed in the same way: all, or those of one
// parity. The part has taps_h × taps_w taps. Its tap (t, u) is the filter's (first_h + t step_h,
// first_w + u step_w). It sees pixel (i stride + corner_h + t dilation_h, …).
struct Im2colPart {
  int tiles = 0;  // of rows; a multiple of the cluster's blocks
  int pixels = 0;
  int first_pixel = 0;  // where pixel (0, 0) of the part is in an image of the result
  int taps_h = 0;
  int taps_w = 0;
  int first_h = 0;
  int first_w = 0;
  int corner_h = 0;
  int corner_w = 0;
  Divider by_height = Divider(1);
  Divider by_width = Divider(1);
  // The same for the store, which takes 64 pixels as one box.
  Divider by_stored_height = Divider(1);
  Divider by_stored_width = Divider(1);
};

inline constexpr int kMostParts = 4;
struct Im2colProblem {
  Im2colPart part[kMostParts];
  int parts = 0;
  int columns = 0;
  int column_tiles = 0;
  int chunks = 0;  // of 64 summed channels
  int stride_h = 1;
  int stride_w = 1;
  int dilation_h = 1;
  int dilation_w = 1;
  int step_h = 1;
  int step_w = 1;
  int filter_width = 1;
  // Distances between a part's pixels in the result: of neighbours, rows and images.
  int pixel_step = 1;
  int pixel_row = 1;
  int pixel_image = 1;
};

struct Im2colMaps {
  TensorMap x[kMostParts];      // im2col: kRows pixels × 64 channels
  TensorMap w;                  // [K, R × S, C]: boxes of [64, 1, 64]
  TensorMap y[kMostParts];      // boxes of 64 pixels × 64 columns, by the dividers of the store
  TensorMap added[kMostParts];  // as y; only if there is an addend
};

// kColumns columns, and kBlocks × 64 rows for each of two groups.
template <int kColumns_>
struct Im2colTile {
  static constexpr int kColumns = kColumns_;
  static constexpr int kWide = kColumns / 64;
  static constexpr int kBlocks = kColumns == 256 ? 1 : 2;
  static constexpr int kRows = 2 * kBlocks * 64;
  static constexpr int kCluster = kWide > 1 ? 2 : 1;
  static constexpr int kBytesX = kRows * kPixelBytes;
  static constexpr int kStage = kBytesX + kWide * kBorderTap;
  static constexpr int kStages = 3;
  static constexpr int kSlice = 64 * kPixelBytes;  // of results
  static constexpr int kSlices = kBlocks * kWide;  // of a group
  static constexpr size_t kShared =
      kSharedSlack + kStages * kStage + 2 * kSlices * kSlice + (2 * kStages + 2) * sizeof(Mbarrier);
};

// The tile of rows and of columns with number i: first the columns, so that blocks of one time
// share rows.
template <class Tile>
struct Im2colPlace {
  const Im2colPart* part;
  int number;  // of the part
  int column;
  int pixel;  // the first

  __device__ __forceinline__ Im2colPlace(const Im2colProblem& p, int i, int rank) {
    column = i % p.column_tiles * Tile::kColumns;
    int rows = i / p.column_tiles * Tile::kCluster + rank;
    number = 0;
    while (rows >= p.part[number].tiles) rows -= p.part[number++].tiles;
    part = &p.part[number];
    pixel = rows * Tile::kRows;
  }
};

struct ImagePixel {
  int image;
  int h;
  int w;
  __device__ __forceinline__ ImagePixel(Divider by_height, Divider by_width, int i) {
    const auto [row, column] = by_width(static_cast<unsigned>(i));
    const auto [image_, row_of_image] = by_height(row);
    image = static_cast<int>(image_);
    h = static_cast<int>(row_of_image);
    w = static_cast<int>(column);
  }
};

// Writes a group's sums, zeros without products, to its slices of [64 rows][64 columns] of T. Adds
// the bias of `columns` columns, and what the slices contain if `adds`.
template <class T, class Tile>
__device__ __forceinline__ void write_rows(unsigned char* out,
                                           const float (&sums)[Tile::kBlocks][Tile::kColumns / 2],
                                           bool products, const float* bias, int columns,
                                           bool adds) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int block = 0; block < Tile::kBlocks; ++block)
#pragma unroll
    for (int j = 0; j < Tile::kColumns / 16; ++j) {  // 16 columns at a time
      unsigned char* const row = out + (block * Tile::kWide + j / 4) * Tile::kSlice +
                                 swizzled_128(warp * 16 + lane % 16, j % 4 * 2 + lane / 16);
      unsigned added[4] = {};
      if (adds) ldmatrix_x4<false>(added, row);
      unsigned words[4];
#pragma unroll
      for (int matrix = 0; matrix < 4; ++matrix) {
        // Rows 0-7 and 8-15 of the first eight columns, then of the second.
        float low = products ? sums[block][j * 8 + matrix * 2] : 0;
        float high = products ? sums[block][j * 8 + matrix * 2 + 1] : 0;
        const int column = j * 16 + matrix / 2 * 8 + lane % 4 * 2;
        if (bias && column < columns) {  // columns are a multiple of eight
          low += bias[column];
          high += bias[column + 1];
        }
        if (adds) add_packed<T>(low, high, added[matrix]);
        words[matrix] = pack<T>(low, high);
      }
      stmatrix_x4<false>(row, words[0], words[1], words[2], words[3]);
    }
}

// The warps of a group divide its slices among them: each takes kSummed rows of one.
template <class Tile>
struct SummedSlice {
  static constexpr int kSummed = Tile::kWide > 1 ? 64 : 32;
  static constexpr int kParts = 4 / Tile::kWide;  // of a channel, by a group
  int part;
  int slice;
  int row;  // of the group's; the first
  int row_of_slice;
  int column;  // of the tile's; the first

  __device__ __forceinline__ SummedSlice() {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    part = warp / Tile::kWide;
    row = part * kSummed;
    slice = row / 64 * Tile::kWide + warp % Tile::kWide;
    row_of_slice = row % 64;
    column = warp % Tile::kWide * 64;
  }
};

// Adds this warp's rows of a group's results, whose first pixel is `pixel`.
template <class Tile, class T, bool kGradient>
__device__ __forceinline__ void add_results(Columns<T, kGradient>& columns,
                                            const ColumnSums<T>& sums, unsigned char* out,
                                            const Im2colProblem& problem, const Im2colPart& part,
                                            int pixel) {
  const SummedSlice<Tile> of;
#pragma unroll 1
  for (int begin = 0; begin < of.kSummed; begin += columns.kRows)
    columns.add(sums, out + of.slice * Tile::kSlice, [&](int i) -> SummedRow {
      const int row = of.row_of_slice + begin + i;
      const int from = pixel + of.row + begin + i;
      if (from >= part.pixels) return {row, -1};
      if (!kGradient) return {row, from};
      const ImagePixel at(part.by_height, part.by_width, from);
      return {row, at.image * problem.pixel_image + at.h * problem.pixel_row +
                       at.w * problem.pixel_step + part.first_pixel};
    });
}

template <class T, class Tile, bool kGradient>
__global__ void __launch_bounds__(kBorderThreads, 1)
    conv2d_im2col_kernel(GRID_CONSTANT(Im2colProblem) problem, GRID_CONSTANT(Im2colMaps) maps,
                         const float* bias, bool adds, ColumnSums<T> column_sums) {
  constexpr int kStages = Tile::kStages;
  constexpr int kCluster = Tile::kCluster;
  DYNAMIC_SHARED_1024(shared);
  unsigned char* const results = shared + kStages * Tile::kStage;
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(results + 2 * Tile::kSlices * Tile::kSlice);
  Mbarrier* const empty = full + kStages;
  Mbarrier* const added_full = empty + kStages;  // one for each group

  const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int rank = kCluster > 1 ? static_cast<int>(cluster_rank()) : 0;
  const int first = static_cast<int>(blockIdx.x) / kCluster;
  const int step = static_cast<int>(gridDim.x) / kCluster;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], 2 * kWarpsOfGroup * kCluster);
    }
    for (int g = 0; g < 2; ++g) mbarrier_init(&added_full[g], 1);
    fence_mbarrier_init();
  }
  if constexpr (kCluster > 1)
    cluster_sync();
  else
    __syncthreads();
  int count = 0;
  for (int p = 0; p < problem.parts; ++p)
    count += problem.part[p].tiles / kCluster * problem.column_tiles;

  if (group == 0) {  // the producer
    set_max_registers_down<40>();
    if (thread == 0) {
      int stage = 0;
      int phase = 0;
      for (int i = first; i < count; i += step) {
        const Im2colPlace<Tile> place(problem, i, rank);
        const Im2colPart& part = *place.part;
        const ImagePixel pixel(part.by_height, part.by_width, place.pixel);
        const int w = pixel.w * problem.stride_w + part.corner_w;
        const int h = pixel.h * problem.stride_h + part.corner_h;
        for (int t = 0; t < part.taps_h; ++t)
          for (int u = 0; u < part.taps_w; ++u) {
            const int tap = (part.first_h + t * problem.step_h) * problem.filter_width +
                            part.first_w + u * problem.step_w;
            for (int chunk = 0; chunk < problem.chunks; ++chunk) {
              if constexpr (kCluster > 1)
                mbarrier_wait_cluster(&empty[stage], phase ^ 1);
              else
                mbarrier_wait(&empty[stage], phase ^ 1);
              unsigned char* const to = shared + stage * Tile::kStage;
              mbarrier_arrive_expect_tx(&full[stage], Tile::kStage);
              tma_load_im2col(to, &maps.x[place.number], &full[stage], chunk * 64, w, h,
                              pixel.image, static_cast<uint16_t>(u * problem.dilation_w),
                              static_cast<uint16_t>(t * problem.dilation_h));
              for (int j = 0; j < Tile::kWide / kCluster; ++j) {
                const int part_of_b = rank * (Tile::kWide / kCluster) + j;
                unsigned char* const to_b = to + Tile::kBytesX + part_of_b * kBorderTap;
                const int column = place.column + part_of_b * 64;
                const int c = kGradient ? column : chunk * 64;
                const int k = kGradient ? chunk * 64 : column;
                if constexpr (kCluster > 1)
                  tma_load_multicast(to_b, &maps.w, &full[stage], (1 << kCluster) - 1, c, tap, k);
                else
                  tma_load(to_b, &maps.w, &full[stage], c, tap, k);
              }
              if (++stage == kStages) {
                stage = 0;
                phase ^= 1;
              }
            }
          }
      }
    }
  } else {
    set_max_registers_up<232>();
    const int consumer = group - 1;
    unsigned char* const out = results + consumer * Tile::kSlices * Tile::kSlice;
    // The stage may be filled again when both groups of all blocks that it is filled for are done.
    const auto release = [&](int stage) {
      if constexpr (kCluster > 1) {
        if (thread % 32 < kCluster) mbarrier_arrive_cluster(&empty[stage], thread % 32);
      } else {
        if (thread % 32 == 0) mbarrier_arrive(&empty[stage]);
      }
    };
    // With sums, all tiles of a block have the same columns.
    const SummedSlice<Tile> summed;
    Columns<T, kGradient> columns(column_sums,
                                  first % problem.column_tiles * Tile::kColumns + summed.column);
    int stage = 0;
    int phase = 0;
    int added_phase = 0;
    for (int i = first; i < count; i += step) {
      const Im2colPlace<Tile> place(problem, i, rank);
      const Im2colPart& part = *place.part;
      const auto stored = [&](int block) {
        return ImagePixel(part.by_stored_height, part.by_stored_width,
                          place.pixel + (consumer * Tile::kBlocks + block) * 64);
      };
      if (thread == 0) {
        bulk_wait_read<0>();  // the results of the tile before have left
        if (adds) {
          mbarrier_arrive_expect_tx(&added_full[consumer], Tile::kSlices * Tile::kSlice);
          for (int block = 0; block < Tile::kBlocks; ++block) {
            const ImagePixel to = stored(block);
            for (int j = 0; j < Tile::kWide; ++j)
              tma_load(out + (block * Tile::kWide + j) * Tile::kSlice, &maps.added[place.number],
                       &added_full[consumer], place.column + j * 64, to.w, to.h, to.image);
          }
        }
      }
      const int slices = part.taps_h * part.taps_w * problem.chunks;
      // Zeros, so that their registers are free between tiles.
      float sums[Tile::kBlocks][Tile::kColumns / 2] = {};
      int last = 0;
      for (int k = 0; k < slices; ++k) {
        mbarrier_wait(&full[stage], phase);
        const unsigned char* const x = shared + stage * Tile::kStage;
        const uint64_t b =
            matrix_descriptor(x + Tile::kBytesX, kBorderTap, 8 * kPixelBytes, Swizzle::Bytes128);
        constexpr int kStepB = kGradient ? 16 * kPixelBytes / 16 : 2;
#pragma unroll
        for (int block = 0; block < Tile::kBlocks; ++block) wgmma_keep(sums[block]);
        wgmma_fence();
#pragma unroll
        for (int block = 0; block < Tile::kBlocks; ++block) {
          const uint64_t a =
              matrix_descriptor(x + (consumer * Tile::kBlocks + block) * 64 * kPixelBytes, 16,
                                8 * kPixelBytes, Swizzle::Bytes128);
#pragma unroll
          for (int kk = 0; kk < 4; ++kk)
            wgmma<T, false, kGradient>(sums[block], a + kk * 2, b + kk * kStepB, k > 0 || kk > 0);
        }
        wgmma_commit();
#pragma unroll
        for (int block = 0; block < Tile::kBlocks; ++block) wgmma_keep(sums[block]);
        wgmma_wait<1>();  // the slice before has been multiplied
        if (k > 0) release(last);
        last = stage;
        if (++stage == kStages) {
          stage = 0;
          phase ^= 1;
        }
      }
      wgmma_wait<0>();
#pragma unroll
      for (int block = 0; block < Tile::kBlocks; ++block) wgmma_keep(sums[block]);
      if (slices > 0) release(last);

      if (adds) {
        mbarrier_wait(&added_full[consumer], added_phase);
        added_phase ^= 1;
      }
      named_barrier_sync(1 + consumer, 128);  // thread 0 has waited for the results before
      write_rows<T, Tile>(out, sums, slices > 0, bias ? bias + place.column : nullptr,
                          problem.columns - place.column, adds);
      if (column_sums.parts) {
        named_barrier_sync(1 + consumer, 128);
        add_results<Tile>(columns, column_sums, out, problem, part,
                          place.pixel + consumer * Tile::kBlocks * 64);
      }
      fence_proxy_async();
      named_barrier_sync(1 + consumer, 128);
      if (thread == 0) {
        for (int block = 0; block < Tile::kBlocks; ++block) {
          const ImagePixel to = stored(block);
          for (int j = 0; j < Tile::kWide; ++j)
            tma_store(&maps.y[place.number], out + (block * Tile::kWide + j) * Tile::kSlice,
                      place.column + j * 64, to.w, to.h, to.image);
        }
        bulk_commit();
      }
    }
    if (thread == 0) bulk_wait<0>();
    columns.store(column_sums, ((first / problem.column_tiles * kCluster + rank) * 2 + consumer) *
                                       summed.kParts +
                                   summed.part);
  }
  if constexpr (kCluster > 1) cluster_sync();  // no block leaves while its barriers may be reached
}

}  // namespace ringgrad::cuda
