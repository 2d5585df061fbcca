// c = a · b + bias by one warpgroup: the first step with Hopper's instructions. wgmma multiplies 64
// × 16 by 16 × 128 elements that lie in shared memory. TMA brings them there: one thread describes
// a box of a tensor, and the copy engine does the rest.
//
// Mapping: a block of 128 threads computes 128 × 128 of c, as two products of 64 × 128. It walks
// along K in slices of 64, one at a time:
//
//     thread 0      starts the copies, and says how many bytes to expect
//     all threads   wait at the mbarrier until they have arrived; start 2 · 4 products; wait for
//     them
//
// a's rows lie along K, 64 elements or 128 bytes in each. b's lie along N, so its part of a slice
// is two boxes of 64 rows, and wgmma transposes it as it reads. gemm.cuh has the swizzle.
//
// Tensor cores rest while a slice is loaded: predicted are 150 to 200 TFLOP/s for 4096. Not yet run
// on a GPU.
#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/hopper/launch_gemm.cuh"
#include "ringgrad/cuda_kernels/ladders.h"

namespace ringgrad::cuda {
namespace {

using hopper::kBoxBytes;
using hopper::kDepth;
using hopper::kRowBytes;

constexpr int kSide = 128;
constexpr int kBytesA = kSide * kRowBytes;
constexpr int kBytesB = kSide / 64 * kBoxBytes;
constexpr size_t kSharedBytes = kBytesA + kBytesB + sizeof(Mbarrier) + kSharedSlack;

template <class T>
__global__ void __launch_bounds__(kWarpgroup)
    warpgroup_kernel(GemmShape shape, GRID_CONSTANT(TensorMap) a, GRID_CONSTANT(TensorMap) b,
                     MatrixStore<T> c) {
  DYNAMIC_SHARED_1024(a_slice);
  unsigned char* b_slice = a_slice + kBytesA;
  Mbarrier* arrived = reinterpret_cast<Mbarrier*>(b_slice + kBytesB);
  const GemmTile tile(shape, kSide, kSide, kDepth);
  const int m0 = static_cast<int>(tile.m0);
  const int n0 = static_cast<int>(tile.n0);
  const int batch = static_cast<int>(tile.batch);
  if (threadIdx.x == 0) {
    mbarrier_init(arrived, 1);
    fence_mbarrier_init();
  }
  __syncthreads();

  float total[2][kSide / 2];
  for (int slice = 0; slice < tile.last_slice; ++slice) {
    if (threadIdx.x == 0) {
      const int k0 = slice * kDepth;
      mbarrier_arrive_expect_tx(arrived, kBytesA + kBytesB);
      tma_load(a_slice, &a, arrived, k0, m0, batch);
      tma_load(b_slice, &b, arrived, n0, k0, batch);
      tma_load(b_slice + kBoxBytes, &b, arrived, n0 + 64, k0, batch);
    }
    mbarrier_wait(arrived, slice % 2);
    const uint64_t b_first =
        matrix_descriptor(b_slice, kBoxBytes, 8 * kRowBytes, Swizzle::Bytes128);
    wgmma_keep(total[0]);
    wgmma_keep(total[1]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        wgmma<T, 0, 1>(total[half],
                       matrix_descriptor(a_slice + half * kBoxBytes, kBoxBytes, 8 * kRowBytes,
                                         Swizzle::Bytes128) +
                           k * 2,
                       b_first + k * kRowBytes, slice > 0 || k > 0);
    wgmma_commit();
    wgmma_keep(total[0]);
    wgmma_keep(total[1]);
    wgmma_wait<0>();
    __syncthreads();  // before the next slice overwrites this one
  }
  wgmma_keep(total[0]);
  wgmma_keep(total[1]);

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int j = 0; j < kSide / 8; ++j)
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const int64_t m = tile.m0 + half * 64 + warp * 16 + lane / 4 + pair * 8;
        const int64_t n = tile.n0 + j * 8 + lane % 4 * 2;
        store_vector<2>(c.at(tile.batch, 0, m, n), 0,
                        {c.result(tile.batch, n, total[half][j * 4 + pair * 2]),
                         c.result(tile.batch, n + 1, total[half][j * 4 + pair * 2 + 1])});
      }
}

template <class T>
void run(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  using D = Element<T>;
  const GemmShape shape{c.shape()[0], c.shape()[1], c.shape()[2], a.shape()[2]};
  launch(warpgroup_kernel<D>, gemm_blocks(shape, kSide, kSide), kWarpgroup, kSharedBytes, stream,
         shape, hopper::operand_map(c.dtype(), left_operand<T>(a), shape.batches, shape.K, kSide),
         hopper::operand_map(c.dtype(), right_operand<T>(b), shape.batches, shape.K, kSide),
         MatrixStore<D>{device_data<T>(c), shape.M, shape.N, optional_data<T>(bias)});
}

}  // namespace

bool warpgroups_support(const Tensor& c, const Tensor& a, const Tensor& b) {
  return warp_tiles_support(c, a, b) && compute_capability_major(c.device()) == 9;
}

void matmul_warpgroup(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                      const Tensor& bias) {
  ASSERT(warpgroups_support(c, a, b));
  (c.dtype() == DType::Float16 ? run<float16> : run<bfloat16>)(stream, c, a, b, bias);
}

}  // namespace ringgrad::cuda
