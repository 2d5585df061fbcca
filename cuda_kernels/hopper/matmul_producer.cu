// c = a · b + bias by a producer and two consumers, then in clusters: the steps from
// matmul_warpgroup.cu to gemm.cuh. Tiles are whole, and operands are stored row by row.
//
// Mapping: a block of three warpgroups computes 128 × 256 of c. One thread of the first keeps four
// stages of slices full. The others multiply 64 × 256 each, and never start a copy. The one waits
// for the other only if it is behind:
//
//     producer    copy 0 │ copy 1 │ copy 2 │ copy 3 │ wait for empty[0] │ copy 4 …
//     consumers   wait for full[0] │ products 0 │ products 1 │ products 2 │ …
//
// Registers belong to a block in equal parts at first. setmaxnreg gives the producer's to the
// consumers, whose 128 sums would not fit otherwise.
//
// Clusters: blocks (0, 1), (2, 3) … compute neighbouring tiles of rows, and share b. Each copies
// half of it to both, which halves what L2 must give for it. Without that L2 is the limit: 48 bytes
// a clock for each multiprocessor, and it has some 39.
//
// Predicted for 4096: 550 to 600 TFLOP/s for a producer, 650 to 700 with clusters. Not yet run on a
// GPU.
#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/hopper/launch_gemm.cuh"
#include "ringgrad/cuda_kernels/ladders.h"

namespace ringgrad::cuda {
namespace {

using hopper::kBoxBytes;
using hopper::kConsumers;
using hopper::kDepth;
using hopper::kGroupRows;
using hopper::kRowBytes;
using hopper::kTileRows;

constexpr int kColumns = 256;
constexpr int kStages = 4;
constexpr int kWarps = kWarpgroup / 32;  // of a consumer
constexpr int kBytesA = kTileRows * kRowBytes;
constexpr int kBytesB = kColumns / 64 * kBoxBytes;
constexpr int kStage = kBytesA + kBytesB;
constexpr size_t kSharedBytes = kStages * kStage + 2 * kStages * sizeof(Mbarrier) + kSharedSlack;

// Blocks of a cluster have neighbouring tiles of rows, and so have neighbouring blocks here.
struct Place {
  int m0;
  int n0;
  int batch;
};
__device__ __forceinline__ Place place(const GemmShape& shape) {
  const int down = static_cast<int>(shape.M) / kTileRows;
  const int across = static_cast<int>(shape.N) / kColumns;
  const int block = static_cast<int>(blockIdx.x);
  return {block % down * kTileRows, block / down % across * kColumns, block / down / across};
}

template <int kCluster>
__device__ __forceinline__ void produce(const Place& at, int slices, const TensorMap& a,
                                        const TensorMap& b, unsigned char* stages, Mbarrier* full,
                                        Mbarrier* empty) {
  const int rank = kCluster > 1 ? static_cast<int>(cluster_rank()) : 0;
  for (int slice = 0; slice < slices; ++slice) {
    const int stage = slice % kStages;
    const int k0 = slice * kDepth;
    unsigned char* a_slice = stages + stage * kStage;
    unsigned char* b_slice = a_slice + kBytesA;
    // The first round finds all stages empty: a barrier's phase before the first counts as over.
    mbarrier_wait_cluster(&empty[stage], slice / kStages % 2 ^ 1);
    mbarrier_arrive_expect_tx(&full[stage], kStage);
    tma_load(a_slice, &a, &full[stage], k0, at.m0, at.batch);
    constexpr int kBoxes = kColumns / 64 / kCluster;
#pragma unroll
    for (int i = 0; i < kBoxes; ++i) {
      const int box = rank * kBoxes + i;
      unsigned char* to = b_slice + box * kBoxBytes;
      if constexpr (kCluster > 1)
        tma_load_multicast(to, &b, &full[stage], (1 << kCluster) - 1, at.n0 + box * 64, k0,
                           at.batch);
      else
        tma_load(to, &b, &full[stage], at.n0 + box * 64, k0, at.batch);
    }
  }
}

template <class T, int kCluster>
__device__ __forceinline__ void consume(const Place& at, int slices, unsigned char* stages,
                                        Mbarrier* full, Mbarrier* empty, int consumer,
                                        const MatrixStore<T>& c) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int lane = thread % 32;
  // By each warp, whose part of a product ends when it does.
  const auto release = [&](int stage) {
    if constexpr (kCluster > 1) {
      if (lane < kCluster) mbarrier_arrive_cluster(&empty[stage], static_cast<unsigned>(lane));
    } else {
      if (lane == 0) mbarrier_arrive(&empty[stage]);
    }
  };
  float total[kColumns / 2];
  for (int slice = 0; slice < slices; ++slice) {
    const int stage = slice % kStages;
    mbarrier_wait(&full[stage], slice / kStages % 2);
    const unsigned char* a_slice = stages + stage * kStage;
    const uint64_t a = matrix_descriptor(a_slice + consumer * kBoxBytes, kBoxBytes, 8 * kRowBytes,
                                         Swizzle::Bytes128);
    const uint64_t b =
        matrix_descriptor(a_slice + kBytesA, kBoxBytes, 8 * kRowBytes, Swizzle::Bytes128);
    wgmma_keep(total);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k)
      wgmma<T, 0, 1>(total, a + k * 2, b + k * kRowBytes, slice > 0 || k > 0);
    wgmma_commit();
    wgmma_keep(total);
    wgmma_wait<1>();  // this slice's products go on, those of the one before are done
    if (slice > 0) release((slice - 1) % kStages);
  }
  wgmma_wait<0>();
  wgmma_keep(total);
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t m = at.m0 + consumer * kGroupRows + thread / 32 * 16 + lane / 4 + half * 8;
      const int64_t n = at.n0 + j * 8 + lane % 4 * 2;
      store_vector<2>(c.at(at.batch, 0, m, n), 0,
                      {c.result(at.batch, n, total[j * 4 + half * 2]),
                       c.result(at.batch, n + 1, total[j * 4 + half * 2 + 1])});
    }
}

template <class T, int kCluster>
__global__ void __launch_bounds__((1 + kConsumers) * kWarpgroup, 1)
    producer_kernel(GemmShape shape, GRID_CONSTANT(TensorMap) a, GRID_CONSTANT(TensorMap) b,
                    MatrixStore<T> c) {
  DYNAMIC_SHARED_1024(stages);
  Mbarrier* full = reinterpret_cast<Mbarrier*>(stages + kStages * kStage);
  Mbarrier* empty = full + kStages;
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], kConsumers * kWarps * kCluster);
    }
    fence_mbarrier_init();
  }
  if constexpr (kCluster > 1)
    cluster_sync();
  else
    __syncthreads();
  const Place at = place(shape);
  const int slices = static_cast<int>(shape.K) / kDepth;
  if (group == 0) {
    set_max_registers_down<40>();
    if (threadIdx.x == 0) produce<kCluster>(at, slices, a, b, stages, full, empty);
    __syncwarp();
  } else {
    set_max_registers_up<232>();
    consume<T, kCluster>(at, slices, stages, full, empty, group - 1, c);
  }
  if constexpr (kCluster > 1) cluster_sync();  // the other block may still reach this one's memory
}

template <class T, int kCluster>
void run(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  using D = Element<T>;
  const GemmShape shape{c.shape()[0], c.shape()[1], c.shape()[2], a.shape()[2]};
  launch_with({.cluster = kCluster}, producer_kernel<D, kCluster>,
              gemm_blocks(shape, kTileRows, kColumns), (1 + kConsumers) * kWarpgroup, kSharedBytes,
              stream, shape,
              hopper::operand_map(c.dtype(), left_operand<T>(a), shape.batches, shape.K, kTileRows),
              hopper::operand_map(c.dtype(), right_operand<T>(b), shape.batches, shape.K, kColumns),
              MatrixStore<D>{device_data<T>(c), shape.M, shape.N, optional_data<T>(bias)});
}

}  // namespace

bool producer_supports(int cluster, const Tensor& c, const Tensor& a, const Tensor& b) {
  return warpgroups_support(c, a, b) && c.shape()[1] % (cluster * kTileRows) == 0 &&
         c.shape()[2] % kColumns == 0;
}

void matmul_producer(int cluster, Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                     const Tensor& bias) {
  ASSERT(producer_supports(cluster, c, a, b));
  const bool half = c.dtype() == DType::Float16;
  (cluster == 1 ? half ? run<float16, 1> : run<bfloat16, 1>
   : half ? run<float16, 2>
                : run<bfloat16, 2>)(stream, c, a, b, bias);
}

}  // namespace ringgrad::cuda
