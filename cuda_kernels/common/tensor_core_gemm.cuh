// The product of gemm.cuh in float16 or bfloat16, accumulated in float32 on tensor cores.
//
// Mapping: a block computes a tile of c, kRows × kColumns. Its warps divide the tile as a grid of
// kWarpsDown × kWarpsAcross; each keeps its part of c in registers as 16 × 8 fragments. The block
// walks along K in slices of 32. cp.async copies the slices of a and b to shared memory, kStages of
// them in flight, while the warps multiply an earlier one. ladders/matmul_fragments.cu develops
// this step by step, and draws the stages.
//
// Shared memory keeps an operand in the order of memory: with k fastest as [long][32], else as
// [32][long]. ldmatrix transposes on the way to the registers if needed. Rows are padded by 16
// bytes, so that the 8 rows which ldmatrix reads at once are in different banks.
#pragma once

#include <cuda_pipeline.h>

#include "ringgrad/cuda_kernels/common/gemm.cuh"
#include "ringgrad/cuda_kernels/common/mma.cuh"
#include "ringgrad/cuda_kernels/common/reduce.cuh"

namespace ringgrad::cuda {

inline constexpr int kSlice = 32;  // elements of K
inline constexpr int kChunk = 8;   // 16-bit elements in 16 bytes, copied at once
inline constexpr int kFragmentM = 16;
inline constexpr int kFragmentN = 8;
inline constexpr int kFragmentK = 16;

template <int kRows_, int kColumns_, int kWarpsDown_, int kWarpsAcross_, int kStages_>
struct TensorCoreTile {
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kStages = kStages_;
  static constexpr int kWarpsDown = kWarpsDown_;
  static constexpr int kWarpsAcross = kWarpsAcross_;
  static constexpr int kThreads = kWarpsDown * kWarpsAcross * kWarp;
  static constexpr int kWarpRows = kRows / kWarpsDown;
  static constexpr int kWarpColumns = kColumns / kWarpsAcross;
  static_assert(kWarpRows % kFragmentM == 0 && kWarpColumns % (2 * kFragmentN) == 0,
                "a warp's part must be made of whole fragments, two columns of them at a time");
};

// One operand's slices in shared memory, kLong × 32 elements each, and the part of them that this
// thread loads.
template <class Operand, int kLong, bool kAlongK, bool kVectors, int kThreads>
struct SliceLoader {
  using T = typename Operand::Value;
  static constexpr int kPitch = (kAlongK ? kSlice : kLong) + kChunk;
  static constexpr int kElements = (kAlongK ? kLong : kSlice) * kPitch;
  static constexpr int kChunks = kLong * kSlice / kChunk / kThreads;  // per thread
  static_assert(kChunks * kThreads * kChunk == kLong * kSlice,
                "every thread must copy as much as the others");

  Operand operand;
  int64_t first;
  int64_t K;
  typename Operand::Row rows[kChunks];

  static __device__ __forceinline__ int at(int i, int k) {
    return kAlongK ? i * kPitch + k : k * kPitch + i;
  }
  // Returns the position of this thread's chunk `c` in a slice.
  static __device__ __forceinline__ int chunk_long(int c) {
    const int chunk = static_cast<int>(threadIdx.x) + c * kThreads;
    return kAlongK ? chunk / (kSlice / kChunk) : chunk % (kLong / kChunk) * kChunk;
  }
  static __device__ __forceinline__ int chunk_k(int c) {
    const int chunk = static_cast<int>(threadIdx.x) + c * kThreads;
    return kAlongK ? chunk % (kSlice / kChunk) * kChunk : chunk / (kLong / kChunk);
  }

  __device__ __forceinline__ SliceLoader(const Operand& operand, int64_t batch, int64_t first,
                                         int64_t K)
      : operand(operand), first(first), K(K) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) rows[c] = operand.row(batch, first + chunk_long(c));
  }

  // Starts copying the slice from k0 on. Elements outside become zero.
  __device__ __forceinline__ void load(T* shared, int64_t batch, int64_t k0) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int64_t k = k0 + chunk_k(c);
      const int64_t i = first + chunk_long(c);
      T* to = shared + at(chunk_long(c), chunk_k(c));
      const T* from = k < K ? operand.address(rows[c], operand.term(k)) : nullptr;
      const int64_t left = kAlongK ? K - k : operand.size - i;
      if constexpr (kVectors) {
        // A chunk of zeros still needs a valid address, although nothing is read from it.
        const int64_t inside = from ? min(left, int64_t{kChunk}) : 0;
        copy_16_async(to, from ? from : operand.data, static_cast<int>(inside * sizeof(T)));
      } else {
        for (int j = 0; j < kChunk; ++j) {
          if (j > 0 && j < left)
            from = kAlongK ? operand.address(rows[c], operand.term(k + j))
                   : k < K ? operand.address(operand.row(batch, i + j), operand.term(k))
                           : nullptr;
          to[j] = from && j < left ? *from : T(0.0f);
        }
      }
    }
  }
};

// Two blocks share a multiprocessor: one multiplies while the other waits for its first slices or
// writes its results.
template <class Tile, class A, class B, class Store, bool kAAlongK, bool kBAlongK, bool kVectors>
__global__ void __launch_bounds__(Tile::kThreads, kVectors ? 2 : 1)
    tensor_core_gemm_kernel(GemmShape shape, A a, B b, Store store) {
  using T = typename A::Value;
  using ALoader = SliceLoader<A, Tile::kRows, kAAlongK, kVectors, Tile::kThreads>;
  using BLoader = SliceLoader<B, Tile::kColumns, kBAlongK, kVectors, Tile::kThreads>;
  constexpr int kStage = ALoader::kElements + BLoader::kElements;
  constexpr int kFragmentsDown = Tile::kWarpRows / kFragmentM;
  constexpr int kFragmentsAcross = Tile::kWarpColumns / kFragmentN;
  DYNAMIC_SHARED(T, stages);

  const GemmTile tile(shape, Tile::kRows, Tile::kColumns, kSlice);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warp_row = warp / Tile::kWarpsAcross * Tile::kWarpRows;
  const int warp_column = warp % Tile::kWarpsAcross * Tile::kWarpColumns;
  const ALoader a_loader(a, tile.batch, tile.m0, shape.K);
  const BLoader b_loader(b, tile.batch, tile.n0, shape.K);

  const auto stage_of = [&](int slice) {
    return stages + (slice - tile.first_slice) % Tile::kStages * kStage;
  };
  const auto load_slice = [&](int slice) {
    if (slice < tile.last_slice) {
      a_loader.load(stage_of(slice), tile.batch, int64_t{slice} * kSlice);
      b_loader.load(stage_of(slice) + ALoader::kElements, tile.batch, int64_t{slice} * kSlice);
    }
    __pipeline_commit();  // even if nothing was loaded, so that the groups can be counted
  };

  // Calls body(first, second, m, n) with each pair of this thread's sums that are neighbours in a
  // row of the result. The second may be beyond its end. Pairs are in an aligned word if rows have
  // an even number of elements.
  float total[kFragmentsDown][kFragmentsAcross][4] = {};
  const bool in_pairs = kVectors && shape.N % 2 == 0;
  const auto for_each_pair = [&](const auto& body) {
#pragma unroll
    for (int i = 0; i < kFragmentsDown; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t m = tile.m0 + warp_row + i * kFragmentM + lane / 4 + half * 8;
        if (m >= shape.M) continue;
#pragma unroll
        for (int j = 0; j < kFragmentsAcross; ++j) {
          const int64_t n = tile.n0 + warp_column + j * kFragmentN + lane % 4 * 2;
          if (n < shape.N) body(total[i][j][half * 2], total[i][j][half * 2 + 1], m, n);
        }
      }
  };

  for (int ahead = 0; ahead < Tile::kStages - 1; ++ahead) load_slice(tile.first_slice + ahead);
  if constexpr (Adds<Store>)
    for_each_pair([&](float& first, float& second, int64_t m, int64_t n) {
      const auto* const from = store.addend(tile.batch, m, n);
      if (!from) return;
      if (in_pairs) {
        const auto pair = load_vector<2>(from, 0);
        first = widen(pair.element[0]);
        second = widen(pair.element[1]);
      } else {
        first = widen(from[0]);
        if (n + 1 < shape.N) second = widen(from[1]);
      }
    });
  for (int slice = tile.first_slice; slice < tile.last_slice; ++slice) {
    __pipeline_wait_prior(Tile::kStages - 2);
    // All threads' copies of this slice have arrived, and all are done with the stage that is
    // loaded next.
    __syncthreads();
    load_slice(slice + Tile::kStages - 1);
    const T* a_slice = stage_of(slice);
    const T* b_slice = a_slice + ALoader::kElements;
#pragma unroll
    for (int k = 0; k < kSlice; k += kFragmentK) {
      unsigned a_fragment[kFragmentsDown][4];
      unsigned b_fragment[kFragmentsAcross][2];
#pragma unroll
      for (int i = 0; i < kFragmentsDown; ++i) {
        // The four 8 × 8 matrices of a fragment: rows 0-7 and 8-15 of the first 8 columns, then of
        // the second 8.
        const int row = warp_row + i * kFragmentM + (kAAlongK ? lane % 16 : lane / 8 % 2 * 8);
        const int column = k + lane / 16 * 8 + (kAAlongK ? 0 : lane % 8);
        ldmatrix_x4<!kAAlongK>(a_fragment[i], a_slice + ALoader::at(row, column));
      }
#pragma unroll
      for (int j = 0; j < kFragmentsAcross; j += 2) {
        // Two neighbouring fragments of b, each for k 0-7 and k 8-15.
        unsigned pair[4];
        const int column = warp_column + j * kFragmentN + lane / 16 * 8 + (kBAlongK ? lane % 8 : 0);
        const int row = k + lane / 8 % 2 * 8 + (kBAlongK ? 0 : lane % 8);
        ldmatrix_x4<!kBAlongK>(pair, b_slice + BLoader::at(column, row));
        b_fragment[j][0] = pair[0];
        b_fragment[j][1] = pair[1];
        b_fragment[j + 1][0] = pair[2];
        b_fragment[j + 1][1] = pair[3];
      }
#pragma unroll
      for (int i = 0; i < kFragmentsDown; ++i)
#pragma unroll
        for (int j = 0; j < kFragmentsAcross; ++j)
          mma_16816<T>(total[i][j], a_fragment[i], b_fragment[j]);
    }
  }

  for_each_pair([&](float first_sum, float second_sum, int64_t m, int64_t n) {
    auto* const to = store.at(tile.batch, tile.split, m, n);
    const auto first = store.result(tile.batch, n, first_sum);
    if (n + 1 == shape.N) {
      *to = first;
      return;
    }
    const auto second = store.result(tile.batch, n + 1, second_sum);
    if (in_pairs) {
      store_vector<2>(to, 0, {first, second});
    } else {
      to[0] = first;
      to[1] = second;
    }
  });
}

// ---- launchers ----------------------------------------------------------------------------------

template <class Tile, bool kAAlongK, bool kBAlongK, bool kVectors, class A, class B, class Store>
void launch_tensor_core_gemm(Stream stream, const GemmShape& shape, const A& a, const B& b,
                             const Store& store) {
  constexpr size_t kStage =
      SliceLoader<A, Tile::kRows, kAAlongK, kVectors, Tile::kThreads>::kElements +
      SliceLoader<B, Tile::kColumns, kBAlongK, kVectors, Tile::kThreads>::kElements;
  launch(tensor_core_gemm_kernel<Tile, A, B, Store, kAAlongK, kBAlongK, kVectors>,
         gemm_blocks(shape, Tile::kRows, Tile::kColumns), Tile::kThreads,
         Tile::kStages * kStage * sizeof(typename A::Value), stream, shape, a, b, store);
}

// kAAlongK: neighbours along K are neighbours in memory; otherwise those along the long dimension
// are. kVectors: eight neighbours, counted from multiples of eight, may be loaded at once, and
// results begin at an even address.
template <bool kAAlongK, bool kBAlongK, bool kVectors, class A, class B, class Store>
void tensor_core_gemm(Stream stream, const GemmShape& shape, const A& a, const B& b,
                      const Store& store) {
  using Large = TensorCoreTile<128, 128, 2, 4, 3>;
  using Small = TensorCoreTile<64, 64, 2, 2, 3>;
  // Small tiles are used if half of a large one would be outside, or if large ones would leave
  // multiprocessors idle. They are also used without vectors, because the time then goes into the
  // loads.
  if constexpr (kVectors)
    if (shape.M > Small::kRows && shape.N > Small::kColumns &&
        gemm_blocks(shape, Large::kRows, Large::kColumns) >=
            static_cast<unsigned>(multiprocessors(stream.device)))
      return launch_tensor_core_gemm<Large, kAAlongK, kBAlongK, kVectors>(stream, shape, a, b,
                                                                          store);
  launch_tensor_core_gemm<Small, kAAlongK, kBAlongK, kVectors>(stream, shape, a, b, store);
}

}  // namespace ringgrad::cuda
