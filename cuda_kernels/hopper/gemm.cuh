// c[b] = a[b] · b[b] + bias in float16 or bfloat16 by the instructions that only Hopper has. TMA
// copies whole tiles, and wgmma multiplies them where they lie, without a register in between.
//
// Mapping: a block computes one tile of 128 × kColumns of c after another (it is persistent). It is
// three warpgroups of 128 threads with two roles, and a ring of stages between them. The ladder
// comes here from matmul_warpgroup.cu on.
//
//     warpgroup 0, one thread    waits until a stage is empty, then starts the copies of a slice:
//                                128 × 64 of a, 64 × kColumns of b
//     warpgroups 1 and 2         wait until a stage is full, multiply 64 × kColumns each, and
//                                declare the stage before it empty
//
//     stage 0   copy 0 │ products 0 │ copy 4 ░░░ …      full[s]:  all bytes have arrived
//     stage 1   copy 1 │ ░░░░░░░░░░ │ products 1 …      empty[s]: all warpgroups have read them
//     stage 2   copy 2 │ ░░░░░░░░░░ │ ░░░░░░░░░░ …
//     stage 3   copy 3 │ ░░░░░░░░░░ │ ░░░░░░░░░░ …
//
// Two blocks of a cluster compute neighbouring tiles of rows. They need the same part of b, so each
// copies one half of it to both (multicast). A stage is then empty when both blocks have read it.
//
// Shared memory. TMA's box has at most 128 bytes in its first dimension, so a tile is a column of
// boxes. Their 16-byte chunks are swizzled: chunk c of row r lies where chunk c ^ (r % 8) would.
// Which dimension of an operand has stride 1 decides what a row is:
//
//     along K     row = one row of a (column of b), 64 of K     a tile is one box
//     otherwise   row = one of K, 64 rows of a                  a tile is a box per 64 rows
//
// wgmma reads both (its "transposed" operand is the second).
//
// Predicted for 4096³ in bfloat16 on an H200: 700 to 750 TFLOP/s, 88 to 94 % of cuBLAS. Not yet run
// on a GPU.
#pragma once

#include <algorithm>

#include "ringgrad/cuda_kernels/common/device_types.cuh"
#include "ringgrad/cuda_kernels/common/hopper.cuh"
#include "ringgrad/cuda_kernels/common/mma.cuh"
#include "ringgrad/cuda_kernels/launch.h"
#include "ringgrad/cuda_kernels/runtime/tensor_map.h"

namespace ringgrad::cuda::hopper {

inline constexpr int kTileRows = 128;  // of a block
inline constexpr int kGroupRows = 64;  // of one product
inline constexpr int kDepth = 64;      // of a slice along K: 128 bytes
inline constexpr int kRowBytes = 128;
inline constexpr int kBoxBytes = 64 * kRowBytes;  // 64 × 64 elements
inline constexpr int kConsumers = 2;

// The parts that bench/hopper_lab leaves out, to see what the rest costs. The results are then
// wrong.
enum Without : unsigned { kNothing = 0, kProducts = 1, kLoads = 2, kEpilogue = 4 };

struct GemmConfig {
  int columns = 256;        // of a tile
  int stages = 4;           // of the ring
  int cluster = 2;          // blocks that share b
  bool multicast = true;    // otherwise each block of a cluster copies all of b
  bool in_turn = false;     // a consumer takes whole tiles, every second one
  bool through_tma = true;  // results: through shared memory, otherwise from the registers
  unsigned without = kNothing;
  bool timed = false;  // writes how long each role waits

  constexpr unsigned flags() const {
    return unsigned{multicast} | unsigned{in_turn} << 1 | unsigned{through_tma} << 2 |
           unsigned{timed} << 3 | without << 4;
  }
};

// The clocks that a block spent, for GemmConfig::timed. A consumer's are those of the first one.
struct GemmClocks {
  long long producer_waits;  // for an empty stage
  long long consumer_waits;  // for a full one
  long long epilogue;
  long long all;
};

struct GemmArguments {
  TensorMap a;  // [batch, long, K], in the order of memory
  TensorMap b;
  TensorMap c;
  void* results;       // c, for GemmConfig::through_tma = false, which adds no bias
  const void* bias;    // [N], of c's type; may be nullptr
  float* partials;     // [split, batch, M, N] if K is split, which then are the results
  GemmClocks* clocks;  // of each block
  int M;
  int N;
  int row_groups;  // groups of `cluster` tiles of rows
  int column_tiles;
  int slices;  // of K
  int splits;
  int groups;  // in all batches and splits
  int batches;
  int band;          // groups of rows whose tiles follow each other: they share b in L2
  int a_batch_step;  // 0 if all batches share a
  int b_batch_step;
};

// The part of c that a group of tiles covers, and the slices of K.
struct GemmPlace {
  int row_group;
  int n0;
  int batch;
  int split;
  int first_slice;
  int last_slice;
};

template <GemmConfig kConfig>
__device__ __forceinline__ GemmPlace place_of(const GemmArguments& g, int group) {
  const int tiles = g.row_groups * g.column_tiles;
  const int outer = group / tiles;
  const int inner = group % tiles;
  const int per_band = g.band * g.column_tiles;
  const int first = inner / per_band * g.band;
  const int rows = min(g.band, g.row_groups - first);
  const int split = outer % g.splits;
  return {first + inner % per_band % rows,
          inner % per_band / rows * kConfig.columns,
          outer / g.splits,
          split,
          static_cast<int>(int64_t{g.slices} * split / g.splits),
          static_cast<int>(int64_t{g.slices} * (split + 1) / g.splits)};
}

template <class T, GemmConfig kConfig, bool kAAlongK, bool kBAlongK>
struct Gemm {
  static constexpr int kColumns = kConfig.columns;
  static constexpr int kStages = kConfig.stages;
  static constexpr int kCluster = kConfig.cluster;
  static constexpr bool kMulticast = kCluster > 1 && kConfig.multicast;
  static constexpr int kBytesA = kTileRows * kRowBytes;
  static constexpr int kBytesB = kColumns * kRowBytes;
  static constexpr int kBytesStage = kBytesA + kBytesB;
  static constexpr int kOutputBuffers = 2;                                    // of each consumer
  static constexpr int kDown = kConfig.in_turn ? kTileRows / kGroupRows : 1;  // products
  // Each warp declares for itself that it has read a stage, because its part of a product ends when
  // it does, not when the warpgroup does.
  static constexpr int kReaders =
      (kConfig.in_turn ? 1 : kConsumers) * (kWarpgroup / 32) * (kMulticast ? kCluster : 1);
  static constexpr int kOutput = kStages * kBytesStage;
  static constexpr int kBarriers = kOutput + kConsumers * kOutputBuffers * kBoxBytes;
  static constexpr size_t kSharedBytes = kBarriers + 2 * kStages * sizeof(Mbarrier) + kSharedSlack;
  static_assert(kSharedBytes <= 227 * 1024, "a block's shared memory");

  // ---- the producer ----

  // Copies `size` of the long dimension from i0 on, slice k0 of K, to `to`.
  template <bool kAlongK>
  static __device__ __forceinline__ void load(unsigned char* to, const TensorMap& map,
                                              Mbarrier* full, int i0, int k0, int size, int batch,
                                              bool to_all) {
    const auto copy = [&](unsigned char* box, int x, int y) {
      if (to_all)
        tma_load_multicast(box, &map, full, (1 << kCluster) - 1, x, y, batch);
      else
        tma_load(box, &map, full, x, y, batch);
    };
    if constexpr (kAlongK) {
      copy(to, k0, i0);
    } else {
#pragma unroll
      for (int i = 0; i < size; i += 64) copy(to + i * kRowBytes, i0 + i, k0);
    }
  }

  static __device__ __forceinline__ void produce(const GemmArguments& g, unsigned char* shared,
                                                 Mbarrier* full, Mbarrier* empty, int rank,
                                                 GemmClocks* clocks) {
    constexpr int kPartOfB = kColumns / (kMulticast ? kCluster : 1);
    const int offset_of_b = kMulticast ? rank * kPartOfB : 0;
    long long waited = 0;
    int stage = 0;
    unsigned phase = 0;
    for (int group = static_cast<int>(blockIdx.x) / kCluster; group < g.groups;
         group += static_cast<int>(gridDim.x) / kCluster) {
      const GemmPlace at = place_of<kConfig>(g, group);
      const int m0 = (at.row_group * kCluster + rank) * kTileRows;
      for (int slice = at.first_slice; slice < at.last_slice; ++slice) {
        const long long before = clock_if_timed();
        if constexpr (kMulticast)
          mbarrier_wait_cluster(&empty[stage], phase ^ 1);
        else
          mbarrier_wait(&empty[stage], phase ^ 1);
        waited += clock_if_timed() - before;
        unsigned char* a = shared + stage * kBytesStage;
        unsigned char* b = a + kBytesA + offset_of_b * kRowBytes;
        if constexpr (kConfig.without & kLoads) {
          mbarrier_arrive(&full[stage]);
        } else {
          mbarrier_arrive_expect_tx(&full[stage], kBytesStage);
          load<kAAlongK>(a, g.a, &full[stage], m0, slice * kDepth, kTileRows,
                         at.batch * g.a_batch_step, false);
          load<kBAlongK>(b, g.b, &full[stage], at.n0 + offset_of_b, slice * kDepth, kPartOfB,
                         at.batch * g.b_batch_step, kMulticast);
        }
        advance(stage, phase);
      }
    }
    if (clocks) clocks->producer_waits = waited;
  }

  // ---- a consumer ----

  static __device__ __forceinline__ void release(Mbarrier* empty, int thread) {
    const int lane = thread % 32;
    if constexpr (kMulticast) {
      if (lane < kCluster) mbarrier_arrive_cluster(empty, static_cast<unsigned>(lane));
    } else {
      if (lane == 0) mbarrier_arrive(empty);
    }
  }

  // Starts the products of one slice: total (+)= a · b.
  static __device__ __forceinline__ void multiply(float (&total)[kDown][kColumns / 2],
                                                  const unsigned char* a, const unsigned char* b,
                                                  bool add) {
    // A step of 16 along K: 32 bytes of each row, or 16 rows. Descriptors count 16 bytes.
    constexpr uint64_t kStepA = (kAAlongK ? 32 : 16 * kRowBytes) / 16;
    constexpr uint64_t kStepB = (kBAlongK ? 32 : 16 * kRowBytes) / 16;
    const uint64_t first_a = matrix_descriptor(a, kBoxBytes, 8 * kRowBytes, Swizzle::Bytes128);
    const uint64_t first_b = matrix_descriptor(b, kBoxBytes, 8 * kRowBytes, Swizzle::Bytes128);
#pragma unroll
    for (int i = 0; i < kDown; ++i) wgmma_keep(total[i]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k)
#pragma unroll
      for (int i = 0; i < kDown; ++i)
        wgmma<T, !kAAlongK, !kBAlongK>(total[i], first_a + k * kStepA + i * (kBoxBytes / 16),
                                       first_b + k * kStepB, add || k > 0);
    wgmma_commit();
#pragma unroll
    for (int i = 0; i < kDown; ++i) wgmma_keep(total[i]);
  }

  // Adds to four sums in two rows: hopper.cuh says which columns a thread holds.
  static __device__ __forceinline__ void add_bias(const GemmArguments& g, const GemmPlace& at,
                                                  int column, float* pairs) {
    const T* bias = static_cast<const T*>(g.bias);
    const int n = at.n0 + column + static_cast<int>(threadIdx.x) % 4 * 2;
    if (!bias || n >= g.N) return;
    const float first = widen(bias[n]);
    const float second = widen(bias[n + 1]);
    pairs[0] += first;
    pairs[1] += second;
    pairs[2] += first;
    pairs[3] += second;
  }

  // Stores 64 rows from m0 on, 64 columns at a time. stmatrix writes a box to shared memory, and
  // TMA copies it while the next box is written. TMA leaves out what is outside of c.
  static __device__ __forceinline__ void store(const GemmArguments& g, const GemmPlace& at, int m0,
                                               float (&total)[kColumns / 2], unsigned char* boxes,
                                               int& buffer, int consumer, int thread) {
    const int lane = thread % 32;
    const int row = thread / 32 * 16 + lane % 16;
#pragma unroll
    for (int box = 0; box < kColumns / 64; ++box) {
      unsigned char* to = boxes + buffer * kBoxBytes;
      buffer ^= 1;
      if (thread == 0) bulk_wait_read<kOutputBuffers - 1>();
      named_barrier_sync(1 + consumer, kWarpgroup);
#pragma unroll
      for (int j = 0; j < 4; ++j) {  // 16 columns
        float* v = total + box * 32 + j * 8;
        add_bias(g, at, box * 64 + j * 16, v);
        add_bias(g, at, box * 64 + j * 16 + 8, v + 4);
        stmatrix_x4<false>(to + swizzled_128(row, j * 2 + lane / 16), pack<T>(v[0], v[1]),
                           pack<T>(v[2], v[3]), pack<T>(v[4], v[5]), pack<T>(v[6], v[7]));
      }
      fence_proxy_async();
      named_barrier_sync(1 + consumer, kWarpgroup);
      if (thread == 0) {
        tma_store(&g.c, to, at.n0 + box * 64, m0, at.batch);
        bulk_commit();
      }
    }
  }

  // Stores 64 rows from the registers, pair by pair. N is even.
  template <class Pair>
  static __device__ __forceinline__ void store_pairs(const GemmArguments& g, const GemmPlace& at,
                                                     int m0, const float (&total)[kColumns / 2],
                                                     int thread, const Pair& pair) {
    const int lane = thread % 32;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      const int n = at.n0 + j * 8 + lane % 4 * 2;
      if (n >= g.N) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int m = m0 + thread / 32 * 16 + lane / 4 + half * 8;
        if (m < g.M) pair(m, n, total[j * 4 + half * 2], total[j * 4 + half * 2 + 1]);
      }
    }
  }

  static __device__ __forceinline__ void consume(const GemmArguments& g, unsigned char* shared,
                                                 Mbarrier* full, Mbarrier* empty, int rank,
                                                 int consumer, int thread, GemmClocks* clocks) {
    unsigned char* boxes = shared + kOutput + consumer * kOutputBuffers * kBoxBytes;
    const int first_row = kConfig.in_turn ? 0 : consumer * kGroupRows;
    float total[kDown][kColumns / 2];
    long long waited = 0;
    long long storing = 0;
    const long long begin = clock_if_timed();
    int buffer = 0;
    int stage = 0;
    unsigned phase = 0;
    int tile = 0;
    for (int group = static_cast<int>(blockIdx.x) / kCluster; group < g.groups;
         group += static_cast<int>(gridDim.x) / kCluster, ++tile) {
      const GemmPlace at = place_of<kConfig>(g, group);
      if (kConfig.in_turn && tile % kConsumers != consumer) {  // the other one's
        const int passed = stage + at.last_slice - at.first_slice;
        phase ^= passed / kStages & 1;
        stage = passed % kStages;
        continue;
      }
      int last = -1;
      for (int slice = at.first_slice; slice < at.last_slice; ++slice) {
        const long long before = clock_if_timed();
        mbarrier_wait(&full[stage], phase);
        waited += clock_if_timed() - before;
        const unsigned char* a = shared + stage * kBytesStage;
        if constexpr (!(kConfig.without & kProducts)) {
          multiply(total, a + first_row * kRowBytes, a + kBytesA, slice > at.first_slice);
          wgmma_wait<1>();  // the slice before has been multiplied
        }
        if (last >= 0) release(&empty[last], thread);
        last = stage;
        advance(stage, phase);
      }
      wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < kDown; ++i) wgmma_keep(total[i]);
      release(&empty[last], thread);
      if constexpr (kConfig.without & kEpilogue) continue;
      const long long before = clock_if_timed();
      const int m0 = (at.row_group * kCluster + rank) * kTileRows + first_row;
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        const int row = m0 + i * kGroupRows;
        if (g.partials) {
          float* to = g.partials + (int64_t{at.split} * g.batches + at.batch) * g.M * int64_t{g.N};
          store_pairs(g, at, row, total[i], thread, [&](int m, int n, float first, float second) {
            store_vector<2>(to + int64_t{m} * g.N + n, 0, {first, second});
          });
        } else if constexpr (kConfig.through_tma) {
          store(g, at, row, total[i], boxes, buffer, consumer, thread);
        } else {
          T* to = static_cast<T*>(g.results) + at.batch * int64_t{g.M} * g.N;
          store_pairs(g, at, row, total[i], thread, [&](int m, int n, float first, float second) {
            store_vector<2>(to + int64_t{m} * g.N + n, 0, {narrow<T>(first), narrow<T>(second)});
          });
        }
      }
      storing += clock_if_timed() - before;
    }
    if (thread == 0) bulk_wait<0>();
    if (clocks && consumer == 0 && thread == 0) {
      clocks->consumer_waits = waited;
      clocks->epilogue = storing;
      clocks->all = clock_if_timed() - begin;
    }
  }

 private:
  static __device__ __forceinline__ void advance(int& stage, unsigned& phase) {
    if (++stage < kStages) return;
    stage = 0;
    phase ^= 1;
  }
  static __device__ __forceinline__ long long clock_if_timed() {
    if constexpr (kConfig.timed) return clock64();
    return 0;
  }
};

template <class T, int kColumns, int kStages, int kCluster, unsigned kFlags, bool kAAlongK,
          bool kBAlongK>
__global__ void __launch_bounds__((1 + kConsumers) * kWarpgroup, 1)
    gemm_kernel(GRID_CONSTANT(GemmArguments) g) {
  // The parameters are numbers, because nvcc 13.0 cannot name a kernel by a GemmConfig.
  constexpr GemmConfig kConfig{kColumns,          kStages,           kCluster,
                               (kFlags & 1) != 0, (kFlags & 2) != 0, (kFlags & 4) != 0,
                               kFlags >> 4,       (kFlags & 8) != 0};
  using G = Gemm<T, kConfig, kAAlongK, kBAlongK>;
  DYNAMIC_SHARED_1024(shared);
  Mbarrier* full = reinterpret_cast<Mbarrier*>(shared + G::kBarriers);
  Mbarrier* empty = full + G::kStages;
  // By a shuffle, so that the compiler sees that all threads of a warp have the same role.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int rank = G::kCluster > 1 ? static_cast<int>(cluster_rank()) : 0;
  GemmClocks* clocks = kConfig.timed ? g.clocks + blockIdx.x : nullptr;
  if (threadIdx.x == 0) {
    for (int s = 0; s < G::kStages; ++s) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], G::kReaders);
    }
    fence_mbarrier_init();
  }
  if constexpr (G::kCluster > 1)
    cluster_sync();
  else
    __syncthreads();
  if (group == 0) {
    set_max_registers_down<40>();
    if (thread == 0) G::produce(g, shared, full, empty, rank, clocks);
    __syncwarp();
  } else {
    set_max_registers_up<232>();
    G::consume(g, shared, full, empty, rank, group - 1, thread, clocks);
  }
  // No block may leave while another one can still reach its barriers and its memory.
  if constexpr (G::kCluster > 1) cluster_sync();
}

}  // namespace ringgrad::cuda::hopper
