// Two kernels that use all of Hopper's instructions together, for emulator_hopper_mutants_test.cpp,
// which includes this file. `mutant` chooses one mistake: UNLESS leaves a statement out, PICK takes
// a wrong value.
#include "ringgrad/cuda_kernels/common/hopper.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace {

using namespace ringgrad::cuda;
using ringgrad::str;
using bf16 = __nv_bfloat16;

#define UNLESS(MUTANT) if (mutant != Mutant::MUTANT)
#define PICK(MUTANT, WRONG, RIGHT) (mutant == Mutant::MUTANT ? (WRONG) : (RIGHT))

enum class Mutant : int {
  None,
  // the pipelined product
  NoWaitForFull,
  NoWaitForEmpty,
  ReleasedEarly,
  ReleasedByOneWarp,
  NoLastWait,
  NoWait,
  NoFence,
  NoCommit,
  SliceOverwritten,
  NoBarrierBeforeStore,
  NoProxyFence,
  ProxyFenceAfterBarrierOfOne,
  TooFewBytes,
  TooManyBytes,
  WrongPhaseOfFull,
  WrongPhaseOfEmpty,
  PhaseNotFlipped,
  TooFewArrivalsExpected,
  TooManyArrivalsExpected,
  NoInit,
  NoInitFence,
  NoBarrierAfterInit,
  BarrierBeforeInit,
  NoCommitOfStore,
  NoLastStoreWait,
  WrongSwizzleOfStore,
  WrongStride,
  WrongAdvanceOfK,
  StageOffset,
  NamedBarrierOfTooMany,
  NamedBarrierShared,
  RegistersUpFirst,
  TooManyRegisters,
  AccumulateAlways,
  TouchedSums,
  // in a cluster
  MulticastToOne,
  MulticastHalfOffset,
  ArriveOnlyLocally,
  NoClusterSyncAtEnd,
  NoClusterSyncAtBegin,
  ArriveAtWrongRank,
  // the convolution
  NoWaitForWeights,
  TileReusedEarly,
  TileReleasedEarly,
  WrongPhaseOfTile,
  ShiftedTap,
  NoBorder,
  WeightsOverlap,
  NoTransposition,
};

constexpr int kRows = 128;  // of a tile: two consumer groups of 64
constexpr int kColumns = 64;
constexpr int kDepth = 64;  // of K, in a stage
constexpr int kStages = 3;
constexpr int kBytesA = kRows * kDepth * 2;
constexpr int kBytesB = kColumns * kDepth * 2;
constexpr int kBytesStage = kBytesA + kBytesB;
constexpr int kBytesSlice = 64 * 32 * 2;  // 32 columns of a group's 64 rows, 64 bytes each
constexpr int kBarrierBytes = 256;
constexpr int kProductShared =
    kStages * kBytesStage + 4 * kBytesSlice + kBarrierBytes + kSharedSlack;

struct Tiles {
  int m;
  int n;
  int k;
};

// c [M, N] = a [M, K] · b [N, K]ᵀ: a producer, two consumers of 64 rows each, tiles in turn. The
// blocks of a cluster take neighbouring tiles of M and share b by multicast.
template <int kCluster>
__global__ void __launch_bounds__(384, 1)
    product_kernel(Mutant mutant, Tiles t, GRID_CONSTANT(TensorMap) map_a,
                   GRID_CONSTANT(TensorMap) map_b, GRID_CONSTANT(TensorMap) map_c) {
  DYNAMIC_SHARED_1024(shared);
  unsigned char* const slices = shared + kStages * kBytesStage;
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(slices + 4 * kBytesSlice);
  Mbarrier* const empty = full + kStages;
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int rank = static_cast<int>(cluster_rank());
  const bool late = mutant == Mutant::BarrierBeforeInit;
  if (late) __syncthreads();
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      UNLESS(NoInit) mbarrier_init(&full[s], 1);
      const unsigned arrivals = 8 * kCluster;
      mbarrier_init(&empty[s], PICK(TooFewArrivalsExpected, arrivals - 1,
                                    PICK(TooManyArrivalsExpected, arrivals + 1, arrivals)));
    }
    UNLESS(NoInitFence) fence_mbarrier_init();
  }
  if constexpr (kCluster > 1) {
    UNLESS(NoClusterSyncAtBegin) cluster_sync();
  } else {
    UNLESS(NoBarrierAfterInit) if (!late) __syncthreads();
  }

  const int tiles = t.m / kCluster * t.n;
  const int step = static_cast<int>(gridDim.x) / kCluster;
  const auto row_of = [&](int tile) { return (tile / t.n * kCluster + rank) * kRows; };
  const auto column_of = [&](int tile) { return tile % t.n * kColumns; };
  if (group == 0) {
    UNLESS(RegistersUpFirst) set_max_registers_down<40>();
    if (thread != 0) {
      if constexpr (kCluster > 1) UNLESS(NoClusterSyncAtEnd) cluster_sync();
      return;
    }
    int stage = 0;
    unsigned phase = 0;
    for (int tile = static_cast<int>(blockIdx.x) / kCluster; tile < tiles; tile += step)
      for (int k = 0; k < t.k; ++k) {
        UNLESS(NoWaitForEmpty)
        mbarrier_wait_cluster(&empty[stage], PICK(WrongPhaseOfEmpty, phase, phase ^ 1));
        unsigned char* const at = shared + stage * kBytesStage;
        mbarrier_arrive_expect_tx(
            &full[stage], kBytesStage - PICK(TooFewBytes, 1024, 0) + PICK(TooManyBytes, 128, 0));
        tma_load(at, &map_a, &full[stage], k * kDepth, row_of(tile));
        if constexpr (kCluster > 1) {
          constexpr int kPart = kColumns / kCluster;
          const int part = PICK(MulticastHalfOffset, 0, rank);
          tma_load_multicast(
              at + kBytesA + part * kPart * kDepth * 2, &map_b, &full[stage],
              static_cast<uint16_t>(PICK(MulticastToOne, 1 << rank, (1 << kCluster) - 1)),
              k * kDepth, column_of(tile) + rank * kPart);
        } else {
          tma_load(at + kBytesA, &map_b, &full[stage], k * kDepth, column_of(tile));
        }
        if (++stage == kStages) {
          stage = 0;
          UNLESS(PhaseNotFlipped) phase ^= 1;
        }
      }
  } else {
    if (mutant == Mutant::TooManyRegisters)
      set_max_registers_up<256>();
    else
      set_max_registers_up<232>();
    const int c = group - 1;
    unsigned char* const out = slices + c * 2 * kBytesSlice;
    float d[kColumns / 2] = {};
    int stage = 0;
    unsigned phase = 0;
    const auto release = [&](int s) {
      if (mutant == Mutant::ReleasedByOneWarp) {
        if (thread < 4) mbarrier_arrive(&empty[s]);
      } else if constexpr (kCluster > 1) {
        if (lane >= kCluster) return;
        const auto to = static_cast<unsigned>(PICK(ArriveAtWrongRank, 0, lane));
        if (mutant == Mutant::ArriveOnlyLocally)
          mbarrier_arrive(&empty[s]);
        else
          mbarrier_arrive_cluster(&empty[s], to);
      } else if (lane == 0) {
        mbarrier_arrive(&empty[s]);
      }
    };
    for (int tile = static_cast<int>(blockIdx.x) / kCluster; tile < tiles; tile += step) {
      int last = -1;
      for (int k = 0; k < t.k; ++k) {
        UNLESS(NoWaitForFull)
        mbarrier_wait_cluster(&full[stage], PICK(WrongPhaseOfFull, phase ^ 1, phase));
        const unsigned char* const at =
            shared + PICK(StageOffset, (stage + 1) % kStages, stage) * kBytesStage;
        const unsigned stride = PICK(WrongStride, 512u, 1024u);
        const uint64_t a =
            matrix_descriptor(at + c * 64 * kDepth * 2, 16, stride, Swizzle::Bytes128);
        const uint64_t b = matrix_descriptor(at + kBytesA, 16, stride, Swizzle::Bytes128);
        wgmma_keep(d);
        UNLESS(NoFence) wgmma_fence();
#pragma unroll
        for (int i = 0; i < kDepth / 16; ++i) {
          const auto ahead = static_cast<uint64_t>(i * PICK(WrongAdvanceOfK, 4, 2));
          wgmma<bf16, 0, 0>(d, a + ahead, b + ahead, PICK(AccumulateAlways, 1, k > 0 || i > 0));
        }
        UNLESS(NoCommit) wgmma_commit();
        wgmma_keep(d);
        if (mutant == Mutant::TouchedSums) d[0] = 0;
        UNLESS(NoWait) wgmma_wait<1>();
        if (mutant == Mutant::ReleasedEarly)
          release(stage);
        else if (last >= 0)
          release(last);
        last = stage;
        if (++stage == kStages) {
          stage = 0;
          phase ^= 1;
        }
      }
      UNLESS(NoLastWait) wgmma_wait<0>();
      wgmma_keep(d);
      UNLESS(ReleasedEarly) release(last);
#pragma unroll
      for (int slice = 0; slice < kColumns / 32; ++slice) {
        unsigned char* const to = out + slice % 2 * kBytesSlice;
        const int barrier = PICK(NamedBarrierShared, 1, 1 + c);
        const int meet = PICK(NamedBarrierOfTooMany, 256, 128);
        UNLESS(SliceOverwritten) if (thread == 0) bulk_wait_read<1>();
        named_barrier_sync(barrier, meet);
#pragma unroll
        for (int j = 0; j < 2; ++j) {  // 16 columns
          const float* const v = d + slice * 16 + j * 8;
          const int row = warp * 16 + lane % 16;
          const int chunk = j * 2 + lane / 16;
          // Rows of 64 bytes: the swizzle is that of two rows of a line of 128.
          const int place =
              row * 64 + (chunk ^ PICK(WrongSwizzleOfStore, row & 3, row / 2 & 3)) * 16;
          stmatrix_x4<false>(to + place, pack<bf16>(v[0], v[1]), pack<bf16>(v[2], v[3]),
                             pack<bf16>(v[4], v[5]), pack<bf16>(v[6], v[7]));
        }
        UNLESS(NoProxyFence)
        if (mutant != Mutant::ProxyFenceAfterBarrierOfOne || thread == 64) fence_proxy_async();
        UNLESS(NoBarrierBeforeStore) named_barrier_sync(barrier, meet);
        if (thread == 0) {
          tma_store(&map_c, to, column_of(tile) + slice * 32, row_of(tile) + c * 64);
          UNLESS(NoCommitOfStore) bulk_commit();
        }
      }
    }
    UNLESS(NoLastStoreWait) if (thread == 0) bulk_wait_read<0>();
  }
  // Nobody leaves while its barriers may be reached.
  if constexpr (kCluster > 1) UNLESS(NoClusterSyncAtEnd) cluster_sync();
}

// y = x * w, 3 × 3, stride 1, padding 1, 64 channels to 64 filters, images of 16 × 16, NHWC and
// KRSC. Filters are M, pixels N. A tile of 8 image rows with its border lies in shared memory once:
// [10][18] pixels of 128 bytes. Tap (r, s) is the same memory begun 18 r + s pixels later. Columns
// 16 and 17 of each row are computed for nothing, and the store cuts them off.
constexpr int kSide = 16;
constexpr int kPitch = kSide + 2;
constexpr int kTileRows = 8;
constexpr int kPositions = kTileRows * kPitch;  // 144
constexpr int kTapBytes = 64 * 128;
constexpr int kLoadBytes = (kTileRows + 2) * kPitch * 128;
constexpr int kTileBytes = (kLoadBytes + 2 * 128 + 1023) / 1024 * 1024;
constexpr int kTileStages = 2;
constexpr int kConvShared = 9 * kTapBytes + kTileStages * kTileBytes + kBarrierBytes + kSharedSlack;

__global__ void __launch_bounds__(384, 1)
    conv_kernel(Mutant mutant, int tiles, GRID_CONSTANT(TensorMap) map_x,
                GRID_CONSTANT(TensorMap) map_w, GRID_CONSTANT(TensorMap) map_y) {
  DYNAMIC_SHARED_1024(shared);
  unsigned char* const weights = shared;
  unsigned char* const ring = shared + 9 * kTapBytes;
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(ring + kTileStages * kTileBytes);
  Mbarrier* const empty = full + kTileStages;
  Mbarrier* const weights_there = empty + kTileStages;
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kTileStages; ++s) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], 1);
    }
    mbarrier_init(weights_there, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  constexpr int kTilesOfImage = kSide / kTileRows;
  if (group == 0) {
    if (thread != 0) return;
    mbarrier_arrive_expect_tx(weights_there, 9 * kTapBytes);
    for (int tap = 0; tap < 9; ++tap)
      tma_load(weights + tap * PICK(WeightsOverlap, 64 * 64, kTapBytes), &map_w, weights_there, 0,
               tap, 0);
    int stage = 0;
    unsigned phase = 0;
    for (int i = static_cast<int>(blockIdx.x); i < tiles; i += static_cast<int>(gridDim.x)) {
      mbarrier_wait(&empty[stage], phase ^ 1);
      mbarrier_arrive_expect_tx(&full[stage], kLoadBytes);
      tma_load(ring + stage * kTileBytes, &map_x, &full[stage], 0, PICK(NoBorder, 0, -1),
               i % kTilesOfImage * kTileRows - 1, i / kTilesOfImage);
      if (++stage == kTileStages) {
        stage = 0;
        phase ^= 1;
      }
    }
    return;
  }
  const int c = group - 1;
  const int warp = thread / 32;
  const int lane = thread % 32;
  float d[kPositions / 2];
  UNLESS(NoWaitForWeights) mbarrier_wait(weights_there, 0);
  int j = c;
  // The two groups take tiles in turn.
  for (int i = static_cast<int>(blockIdx.x + static_cast<unsigned>(c) * gridDim.x); i < tiles;
       i += 2 * static_cast<int>(gridDim.x), j += 2) {
    const int stage = j % kTileStages;
    const unsigned phase = static_cast<unsigned>(j / kTileStages) & 1;
    unsigned char* const tile = ring + stage * kTileBytes;
    mbarrier_wait(&full[stage], PICK(WrongPhaseOfTile, phase ^ 1, phase));
    wgmma_fence();
    for (int tap = 0; tap < 9; ++tap) {
      const int pixel = tap / 3 * kPitch + tap % 3 + PICK(ShiftedTap, 1, 0);
      const uint64_t a = matrix_descriptor(weights + tap * kTapBytes, 16, 1024, Swizzle::Bytes128);
      const uint64_t b = matrix_descriptor(tile + pixel * 128, 16, 1024, Swizzle::Bytes128);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        wgmma<bf16, 0, 0>(d, a + static_cast<uint64_t>(k) * 2, b + static_cast<uint64_t>(k) * 2,
                          tap > 0 || k > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_keep(d);
    // The products of all four warps have read the tile; its memory takes the results,
    // [144 positions][64 filters].
    UNLESS(TileReusedEarly) named_barrier_sync(1 + c, 128);
#pragma unroll
    for (int p = 0; p < kPositions / 8; ++p) {
      const int position = p * 8 + lane % 8;
      const int chunk = warp * 2 + lane / 8 % 2;
      const unsigned low = pack<bf16>(d[p * 4], d[p * 4 + 1]);
      const unsigned high = pack<bf16>(d[p * 4 + 2], d[p * 4 + 3]);
      if (mutant == Mutant::NoTransposition)
        stmatrix_x2<false>(tile + swizzled_128(position, chunk), low, high);
      else
        stmatrix_x2<true>(tile + swizzled_128(position, chunk), low, high);
    }
    fence_proxy_async();
    named_barrier_sync(1 + c, 128);
    if (thread != 0) continue;
    tma_store(&map_y, tile, 0, 0, i % kTilesOfImage * kTileRows, i / kTilesOfImage);
    bulk_commit();
    UNLESS(TileReleasedEarly) bulk_wait_read<0>();
    mbarrier_arrive(&empty[stage]);
  }
  if (thread == 0) bulk_wait<0>();
}

}  // namespace
