// c = a · b + bias on tensor cores, step by step: from fragments that threads gather word by word
// to the method of common/tensor_core_gemm.cuh, for operands that need no special handling. a [M,
// K] and b [K, N] are stored row by row, and all tiles are whole.
//
// Mapping: a block of 2 × 2 warps computes 64 × 64 of c, and a warp 32 × 32 of it: 2 × 4 fragments,
// whose layout common/mma.cuh draws. The block walks along K in slices of 32, which have the same
// order in shared memory as in a and b:
//
//                     N              a slice's part of b: 32 rows of 64, and kPadding elements each
//              ┌──────┬──────┐  K
//              │ b 32 × 64   │
//        K     └──────┴──────┘
//     ┌──────┐ ┌──────┬──────┐
//     │ a    │ │ 0    │ 1    │  M     the four warps' parts of c
//     │ 64   │ ├──────┼──────┤
//     │ × 32 │ │ 2    │ 3    │
//     └──────┘ └──────┴──────┘
#include <cuda_pipeline.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/common/gemm.cuh"
#include "ringgrad/cuda_kernels/common/mma.cuh"
#include "ringgrad/cuda_kernels/ladders.h"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

constexpr int kSide = 64;
constexpr int kDepth = 32;
constexpr int kWarpSide = 32;
constexpr int kBlockThreads = 128;
constexpr int kChunk = 8;  // 16-bit elements in 16 bytes
constexpr int kDown = kWarpSide / 16;
constexpr int kAcross = kWarpSide / 8;

template <class T, int kPadding>
struct Slice {
  T a[kSide][kDepth + kPadding];  // [m][k]
  T b[kDepth][kSide + kPadding];  // [k][n]
};

template <bool kAsync, class T>
__device__ __forceinline__ void copy_chunk(T* to, const T* from) {
  if constexpr (kAsync)
    copy_16_async(to, from, kVectorBytes);
  else
    store_vector<kChunk>(to, 0, load_vector<kChunk>(from, 0));
}

// A thread copies two chunks of a and two of b.
template <bool kAsync, class T, int kPadding>
__device__ __forceinline__ void load_slice(Slice<T, kPadding>& to, const GemmShape& shape,
                                           const GemmTile& tile, const T* a, const T* b,
                                           int64_t k0) {
  constexpr int kRowOfA = kDepth / kChunk;
  constexpr int kRowOfB = kSide / kChunk;  // in chunks
#pragma unroll
  for (int i = 0; i < kSide * kDepth / kChunk / kBlockThreads; ++i) {
    const int chunk = static_cast<int>(threadIdx.x) + i * kBlockThreads;
    const int m = chunk / kRowOfA;
    const int n = chunk % kRowOfB * kChunk;
    const int k_of_a = chunk % kRowOfA * kChunk;
    const int k_of_b = chunk / kRowOfB;
    copy_chunk<kAsync>(&to.a[m][k_of_a], a + (tile.m0 + m) * shape.K + k0 + k_of_a);
    copy_chunk<kAsync>(&to.b[k_of_b][n], b + (k0 + k_of_b) * shape.N + tile.n0 + n);
  }
}

// ---- fragments ----------------------------------------------------------------------------------

// Two 16-bit elements as a word, the first in its lower half.
template <class T>
__device__ __forceinline__ unsigned pack(const T& first, const T& second) {
  return *reinterpret_cast<const uint16_t*>(&first) |
         unsigned{*reinterpret_cast<const uint16_t*>(&second)} << 16;
}

// Gathers word by word. Neighbours along k are neighbours in a's rows, so a's words are whole; in b
// they are in two rows.
template <class T, int kPadding>
__device__ __forceinline__ void gather(unsigned (&a)[kDown][4], unsigned (&b)[kAcross][2],
                                       const Slice<T, kPadding>& slice, int row, int column,
                                       int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4;
  const int pair = lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < kDown; ++i)
#pragma unroll
    for (int word = 0; word < 4; ++word)
      a[i][word] = *reinterpret_cast<const unsigned*>(
          &slice.a[row + i * 16 + group + word % 2 * 8][k + pair + word / 2 * 8]);
#pragma unroll
  for (int j = 0; j < kAcross; ++j)
#pragma unroll
    for (int word = 0; word < 2; ++word) {
      const int at = k + pair + word * 8;
      const int n = column + j * 8 + group;
      b[j][word] = pack(slice.b[at][n], slice.b[at + 1][n]);
    }
}

// The same by ldmatrix: a lane gives the address of one row of 8 elements, in one of four 8 × 8
// matrices.
template <class T, int kPadding>
__device__ __forceinline__ void load_matrices(unsigned (&a)[kDown][4], unsigned (&b)[kAcross][2],
                                              const Slice<T, kPadding>& slice, int row, int column,
                                              int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kDown; ++i)
    ldmatrix_x4<false>(a[i], &slice.a[row + i * 16 + lane % 16][k + lane / 16 * 8]);
#pragma unroll
  for (int j = 0; j < kAcross; j += 2) {
    unsigned two[4];  // neighbouring fragments of b, of two words each
    ldmatrix_x4<true>(two, &slice.b[k + lane % 16][column + j * 8 + lane / 16 * 8]);
    b[j][0] = two[0];
    b[j][1] = two[1];
    b[j + 1][0] = two[2];
    b[j + 1][1] = two[3];
  }
}

using Totals = float[kDown][kAcross][4];

template <bool kLdmatrix, class T, int kPadding>
__device__ __forceinline__ void multiply(Totals& total, const Slice<T, kPadding>& slice, int row,
                                         int column) {
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    unsigned a[kDown][4];
    unsigned b[kAcross][2];
    if constexpr (kLdmatrix)
      load_matrices(a, b, slice, row, column, k);
    else
      gather(a, b, slice, row, column, k);
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int j = 0; j < kAcross; ++j) mma_16816<T>(total[i][j], a[i], b[j]);
  }
}

template <class T>
__device__ __forceinline__ void store(const Totals& total, const MatrixStore<T>& c,
                                      const GemmTile& tile, int row, int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kDown; ++i)
#pragma unroll
    for (int j = 0; j < kAcross; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t m = tile.m0 + row + i * 16 + lane / 4 + half * 8;
        const int64_t n = tile.n0 + column + j * 8 + lane % 4 * 2;
        store_vector<2>(c.at(tile.batch, 0, m, n), 0,
                        {c.result(tile.batch, n, total[i][j][half * 2]),
                         c.result(tile.batch, n + 1, total[i][j][half * 2 + 1])});
      }
}

// ---- one slice at a time: loads, then products, then loads --------------------------------------

template <class T, bool kLdmatrix, int kPadding>
__global__ void __launch_bounds__(kBlockThreads)
    one_slice_kernel(GemmShape shape, const T* a, const T* b, MatrixStore<T> c) {
  using OneSlice = Slice<T, kPadding>;
  DYNAMIC_SHARED(OneSlice, slice);
  const GemmTile tile(shape, kSide, kSide, kDepth);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp / 2 * kWarpSide;
  const int column = warp % 2 * kWarpSide;
  a += tile.batch * shape.M * shape.K;
  b += tile.batch * shape.K * shape.N;
  Totals total = {};
  for (int64_t k0 = 0; k0 < shape.K; k0 += kDepth) {
    load_slice<false>(*slice, shape, tile, a, b, k0);
    __syncthreads();
    multiply<kLdmatrix>(total, *slice, row, column);
    __syncthreads();  // before the next slice overwrites this one
  }
  store(total, c, tile, row, column);
}

// ---- stages -------------------------------------------------------------------------------------
//
// Shared memory holds three slices in a ring. cp.async bypasses the registers, and no thread waits
// for it: two slices are loading while a third is multiplied. At each bar the block waits for the
// oldest copy and for all its threads. Then all threads can read that slice, and the previous one,
// whose place the next copy takes, is no longer read.
//
//               before      │ slice 0    │ slice 1    │ slice 2    │ slice 3
//     stage 0   copy 0 ░░░░ │ multiply 0 │ copy 3 ░░░ │ ░░░░░░░░░░ │ multiply 3 …
//     stage 1   copy 1 ░░░░ │ ░░░░░░░░░░ │ multiply 1 │ copy 4 ░░░ │ ░░░░░░░░░░ …
//     stage 2               │ copy 2 ░░░ │ ░░░░░░░░░░ │ multiply 2 │ copy 5 ░░░ …
template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    staged_kernel(GemmShape shape, const T* a, const T* b, MatrixStore<T> c) {
  constexpr int kStages = 3;
  using Stage = Slice<T, kChunk>;
  DYNAMIC_SHARED(Stage, stages);
  const GemmTile tile(shape, kSide, kSide, kDepth);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp / 2 * kWarpSide;
  const int column = warp % 2 * kWarpSide;
  a += tile.batch * shape.M * shape.K;
  b += tile.batch * shape.K * shape.N;
  const auto start = [&](int slice) {
    if (slice < tile.last_slice)
      load_slice<true>(stages[slice % kStages], shape, tile, a, b, int64_t{slice} * kDepth);
    __pipeline_commit();  // even if there was none, so that the groups can be counted
  };
  Totals total = {};
  start(0);
  start(1);
  for (int slice = 0; slice < tile.last_slice; ++slice) {
    __pipeline_wait_prior(1);  // waits for all but the newest group: this slice has arrived
    __syncthreads();
    start(slice + 2);
    multiply<true>(total, stages[slice % kStages], row, column);
  }
  store(total, c, tile, row, column);
}

template <class T>
void run(MatmulStep step, Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
         const Tensor& bias) {
  using D = Element<T>;
  const GemmShape shape{c.shape()[0], c.shape()[1], c.shape()[2], a.shape()[2]};
  const bool padded = step >= MatmulStep::PaddedRows;
  const size_t slice = padded ? sizeof(Slice<D, kChunk>) : sizeof(Slice<D, 0>);
  const auto kernel = step == MatmulStep::Fragments    ? one_slice_kernel<D, false, 0>
                      : step == MatmulStep::Ldmatrix   ? one_slice_kernel<D, true, 0>
                      : step == MatmulStep::PaddedRows ? one_slice_kernel<D, true, kChunk>
                                                       : staged_kernel<D>;
  launch(kernel, gemm_blocks(shape, kSide, kSide), kBlockThreads,
         step == MatmulStep::Stages ? 3 * slice : slice, stream, shape, device_data<T>(a),
         device_data<T>(b),
         MatrixStore<D>{device_data<T>(c), shape.M, shape.N, optional_data<T>(bias)});
}

}  // namespace

bool fragments_support(const Tensor& c, const Tensor& a, const Tensor& b) {
  const auto whole = [](const Tensor& x) {
    return x.is_contiguous() && reinterpret_cast<uintptr_t>(x.raw_data()) % kVectorBytes == 0;
  };
  return (c.dtype() == DType::Float16 || c.dtype() == DType::BFloat16) && whole(a) && whole(b) &&
         whole(c) && c.shape()[1] % kSide == 0 && c.shape()[2] % kSide == 0 &&
         a.shape()[2] % kDepth == 0;
}

void matmul_fragments(MatmulStep step, Stream stream, const Tensor& c, const Tensor& a,
                      const Tensor& b, const Tensor& bias) {
  ASSERT(fragments_support(c, a, b));
  (c.dtype() == DType::Float16 ? run<float16> : run<bfloat16>)(step, stream, c, a, b, bias);
}

}  // namespace ringgrad::cuda
