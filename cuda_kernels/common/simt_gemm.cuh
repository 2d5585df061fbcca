// The product of gemm.cuh without tensor cores, for every floating type.
//
// Mapping: 16 × 16 threads compute a tile of 64 × 64, 4 × 4 each, in registers. Slices of 16 of K
// pass through shared memory. Neighbouring threads load neighbouring elements, along K or along the
// long dimension.
#pragma once

#include "ringgrad/cuda_kernels/common/gemm.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {

inline constexpr int kSimtTile = 64;
inline constexpr int kSimtSlice = 16;
inline constexpr int kSimtSide = 4;
inline constexpr int kSimtThreads = 256;
// The number of loads per thread, operand and slice.
inline constexpr int kSimtLoads = kSimtTile * kSimtSlice / kSimtThreads;

// Loads this thread's part of an operand's tile into shared memory, as slice[k][i].
template <class Operand, bool kAlongK>
struct ElementLoader {
  using T = typename Operand::Value;
  Operand operand;
  int64_t K;
  typename Operand::Row rows[kSimtLoads];

  static __device__ __forceinline__ int long_of(int load) {
    const int e = static_cast<int>(threadIdx.x) + load * kSimtThreads;
    return kAlongK ? e / kSimtSlice : e % kSimtTile;
  }
  static __device__ __forceinline__ int k_of(int load) {
    const int e = static_cast<int>(threadIdx.x) + load * kSimtThreads;
    return kAlongK ? e % kSimtSlice : e / kSimtTile;
  }

  __device__ __forceinline__ ElementLoader(const Operand& operand, int64_t batch, int64_t first,
                                           int64_t K)
      : operand(operand), K(K) {
#pragma unroll
    for (int l = 0; l < kSimtLoads; ++l) rows[l] = operand.row(batch, first + long_of(l));
  }
  // With one column of padding, threads that store along k write to different banks.
  __device__ __forceinline__ void load(Compute<T> (&slice)[kSimtSlice][kSimtTile + 1],
                                       int64_t k0) const {
#pragma unroll
    for (int l = 0; l < kSimtLoads; ++l) {
      const int64_t k = k0 + k_of(l);
      const T* from = k < K ? operand.address(rows[l], operand.term(k)) : nullptr;
      slice[k_of(l)][long_of(l)] = from ? widen(*from) : Compute<T>(0);
    }
  }
};

template <class A, class B, class Store, bool kAAlongK, bool kBAlongK>
__global__ void __launch_bounds__(kSimtThreads)
    simt_gemm_kernel(GemmShape shape, A a, B b, Store store) {
  using C = Compute<typename A::Value>;
  __shared__ C a_slice[kSimtSlice][kSimtTile + 1];
  __shared__ C b_slice[kSimtSlice][kSimtTile + 1];
  constexpr int kAcross = kSimtTile / kSimtSide;
  const int tx = static_cast<int>(threadIdx.x) % kAcross;
  const int ty = static_cast<int>(threadIdx.x) / kAcross;
  const GemmTile tile(shape, kSimtTile, kSimtTile, kSimtSlice);
  const ElementLoader<A, kAAlongK> a_loader(a, tile.batch, tile.m0, shape.K);
  const ElementLoader<B, kBAlongK> b_loader(b, tile.batch, tile.n0, shape.K);
  C total[kSimtSide][kSimtSide];
#pragma unroll
  for (int i = 0; i < kSimtSide; ++i)
#pragma unroll
    for (int j = 0; j < kSimtSide; ++j) {
      const int64_t m = tile.m0 + ty + i * kAcross;
      const int64_t n = tile.n0 + tx + j * kAcross;
      total[i][j] = m < shape.M && n < shape.N ? first_term<C>(store, tile.batch, m, n) : C(0);
    }
  for (int slice = tile.first_slice; slice < tile.last_slice; ++slice) {
    a_loader.load(a_slice, int64_t{slice} * kSimtSlice);
    b_loader.load(b_slice, int64_t{slice} * kSimtSlice);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kSimtSlice; ++k) {
      C row[kSimtSide];
      C column[kSimtSide];
#pragma unroll
      for (int r = 0; r < kSimtSide; ++r) {
        row[r] = a_slice[k][ty + r * kAcross];
        column[r] = b_slice[k][tx + r * kAcross];
      }
#pragma unroll
      for (int i = 0; i < kSimtSide; ++i)
#pragma unroll
        for (int j = 0; j < kSimtSide; ++j) total[i][j] += row[i] * column[j];
    }
    __syncthreads();  // before the next slices overwrite these
  }
#pragma unroll
  for (int i = 0; i < kSimtSide; ++i)
#pragma unroll
    for (int j = 0; j < kSimtSide; ++j) {
      const int64_t m = tile.m0 + ty + i * kAcross;
      const int64_t n = tile.n0 + tx + j * kAcross;
      if (m < shape.M && n < shape.N)
        *store.at(tile.batch, tile.split, m, n) = store.result(tile.batch, n, total[i][j]);
    }
}

// kAAlongK: neighbours along K are neighbours in memory; otherwise those along the long dimension
// are. Only the speed depends on it.
template <bool kAAlongK, bool kBAlongK, class A, class B, class Store>
void simt_gemm(Stream stream, const GemmShape& shape, const A& a, const B& b, const Store& store) {
  launch(simt_gemm_kernel<A, B, Store, kAAlongK, kBAlongK>,
         gemm_blocks(shape, kSimtTile, kSimtTile), kSimtThreads, 0, stream, shape, a, b, store);
}

}  // namespace ringgrad::cuda
