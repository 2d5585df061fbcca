// c = a · b + bias by mma.sync, as fast as it gets. The products' words come from shared memory. A
// warp of 32 × 32 reads two words for what a warp of 64 × 64 does with one.
//
// Mapping: a block of 2 × 2 warps computes 128 × 128 of c, and a warp 64 × 64: 4 × 8 fragments. The
// block walks along K in slices of 64. The fragments of the next 16 of K load while tensor cores
// multiply these, so a warp needs nearly all registers that a thread can have.
//
// Swizzle: 128 bytes are a row of the slice of a, and half a row of b's. Chunk c (16 bytes) of row
// r lies where chunk c ^ (r % 8) would. ldmatrix reads a chunk of eight rows at a time, and finds
// them in eight different groups of banks, without padding:
//
//     row 0   0 1 2 3 4 5 6 7        chunk 2 of
//     row 1   1 0 3 2 5 4 7 6        rows 0 to 7
//     row 2   2 3 0 1 6 7 4 5        is at 2 3 0 1 6 7 4 5
//
// The model of bench/README.md: shared memory allows 62 % of the tensor cores' rate, which is what
// mma.sync reaches at most on Hopper. Predicted: 500 to 550 TFLOP/s for 4096. Not yet run on a GPU.
#include <cuda_pipeline.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/common/gemm.cuh"
#include "ringgrad/cuda_kernels/common/mma.cuh"
#include "ringgrad/cuda_kernels/ladders.h"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

constexpr int kSide = 128;
constexpr int kWarpSide = 64;
constexpr int kDepth = 64;
constexpr int kStages = 3;
constexpr int kBlockThreads = 128;
constexpr int kChunk = 8;                         // elements in 16 bytes
constexpr int kChunks = kSide * kDepth / kChunk;  // of a slice of a, or of b
constexpr int kDown = kWarpSide / 16;
constexpr int kAcross = kWarpSide / 8;

template <class T>
struct Slice {
  T a[kSide * kDepth];  // [m][k]
  T b[kDepth * kSide];  // [k][n]

  // Return the place of eight neighbours, the first of them in this row and column.
  static __device__ __forceinline__ int at_a(int m, int k) {
    return m * kDepth + ((k / kChunk ^ m % 8) * kChunk);
  }
  static __device__ __forceinline__ int at_b(int k, int n) {
    return k * kSide + ((n / kChunk ^ k % 8) * kChunk);
  }
};

// A thread copies one chunk of every 16th row of a, and of every 8th row of b.
template <class T>
__device__ __forceinline__ void load_slice(Slice<T>& to, const GemmShape& shape, const T* a,
                                           const T* b) {
  constexpr int kRowOfA = kDepth / kChunk;
  constexpr int kRowOfB = kSide / kChunk;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kChunks / kBlockThreads; ++i) {
    const int m = thread / kRowOfA + i * (kBlockThreads / kRowOfA);
    const int k = thread / kRowOfB + i * (kBlockThreads / kRowOfB);
    copy_16_async(&to.a[Slice<T>::at_a(m, thread % kRowOfA * kChunk)],
                  a + m * shape.K + thread % kRowOfA * kChunk, kVectorBytes);
    copy_16_async(&to.b[Slice<T>::at_b(k, thread % kRowOfB * kChunk)],
                  b + k * shape.N + thread % kRowOfB * kChunk, kVectorBytes);
  }
}

struct Fragments {
  unsigned a[kDown][4];
  unsigned b[kAcross][2];
};

template <class T>
__device__ __forceinline__ void load_fragments(Fragments& to, const Slice<T>& slice, int row,
                                               int column, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kDown; ++i)
    ldmatrix_x4<false>(to.a[i],
                       &slice.a[Slice<T>::at_a(row + i * 16 + lane % 16, k + lane / 16 * kChunk)]);
#pragma unroll
  for (int j = 0; j < kAcross; j += 2) {
    unsigned two[4];
    ldmatrix_x4<true>(two,
                      &slice.b[Slice<T>::at_b(k + lane % 16, column + j * 8 + lane / 16 * kChunk)]);
    to.b[j][0] = two[0];
    to.b[j][1] = two[1];
    to.b[j + 1][0] = two[2];
    to.b[j + 1][1] = two[3];
  }
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads, 2)
    warp_tiles_kernel(GemmShape shape, const T* a, const T* b, MatrixStore<T> c) {
  using Stage = Slice<T>;
  DYNAMIC_SHARED(Stage, stages);
  const GemmTile tile(shape, kSide, kSide, kDepth);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp / 2 * kWarpSide;
  const int column = warp % 2 * kWarpSide;
  a += (tile.batch * shape.M + tile.m0) * shape.K;
  b += tile.batch * shape.K * shape.N + tile.n0;
  const auto start = [&](int slice) {
    if (slice < tile.last_slice)
      load_slice(stages[slice % kStages], shape, a + int64_t{slice} * kDepth,
                 b + slice * kDepth * shape.N);
    __pipeline_commit();  // even if there was none, so that the groups can be counted
  };
  float total[kDown][kAcross][4] = {};
  Fragments fragments[2];
  for (int slice = 0; slice < kStages - 1; ++slice) start(slice);
  for (int slice = 0; slice < tile.last_slice; ++slice) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();
    start(slice + kStages - 1);
    const Stage& now = stages[slice % kStages];
    load_fragments(fragments[0], now, row, column, 0);
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      if (k + 16 < kDepth) load_fragments(fragments[(k / 16 + 1) % 2], now, row, column, k + 16);
      const Fragments& f = fragments[k / 16 % 2];
#pragma unroll
      for (int i = 0; i < kDown; ++i)
#pragma unroll
        for (int j = 0; j < kAcross; ++j) mma_16816<T>(total[i][j], f.a[i], f.b[j]);
    }
  }
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

template <class T>
void run(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  using D = Element<T>;
  const GemmShape shape{c.shape()[0], c.shape()[1], c.shape()[2], a.shape()[2]};
  launch(warp_tiles_kernel<D>, gemm_blocks(shape, kSide, kSide), kBlockThreads,
         kStages * sizeof(Slice<D>), stream, shape, device_data<T>(a), device_data<T>(b),
         MatrixStore<D>{device_data<T>(c), shape.M, shape.N, optional_data<T>(bias)});
}

}  // namespace

bool warp_tiles_support(const Tensor& c, const Tensor& a, const Tensor& b) {
  return fragments_support(c, a, b) && c.shape()[1] % kSide == 0 && c.shape()[2] % kSide == 0 &&
         a.shape()[2] % kDepth == 0;
}

void matmul_warp_tiles(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                       const Tensor& bias) {
  ASSERT(warp_tiles_support(c, a, b));
  (c.dtype() == DType::Float16 ? run<float16> : run<bfloat16>)(stream, c, a, b, bias);
}

}  // namespace ringgrad::cuda
