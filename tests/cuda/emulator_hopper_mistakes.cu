// Kernels with one mistake each in the use of Hopper's instructions, for
// emulator_hopper_mistakes_test.cpp, which includes this file.
#include "ringgrad/cuda_kernels/common/hopper.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace {

using namespace ringgrad::cuda;
using ringgrad::str;

enum class Mistake : int {
  None,
  MisalignedMbarrier,
  NoArrivals,
  TooManyArrivals,
  TooManyBytes,
  InitTwice,
  UseAfterInval,
  UseBeforeInit,
  BadParity,
  LappedWaiter,
  MbarrierDeadlock,
  MisalignedTarget,
  TargetBeyondShared,
  WrongRank,
  WrongMode,
  NoTensorMap,
  TwoCopiesToOnePlace,
  ExitBeforeLanding,
  ExitBeforeReading,
  NoCommit,
  BytesNobodyAnnounced,
  BulkOfOddBytes,
  BarrierNumber,
  BarrierOfOddThreads,
  BarrierOfTwoSizes,
  PartOfWarpAtBarrier,
  ArrivalNobodyWaitsFor,
  RegistersNoMultiple,
  RegistersDownToMore,
  RegistersNeverFree,
  SmallWarpgroup,
  DifferentDescriptors,
  OperandBeyondShared,
  StmatrixAlignment,
  PartOfWarpElects,
  ClusterWaitAlone,
};

__global__ void mistake_kernel(Mistake mistake, GRID_CONSTANT(TensorMap) map, const float* x) {
  DYNAMIC_SHARED_1024(shared);
  const auto is = [&](Mistake m) { return mistake == m; };
  Mbarrier* const barrier = reinterpret_cast<Mbarrier*>(shared + 4096);
  const bool first = threadIdx.x == 0;
  if (first && !is(Mistake::UseBeforeInit)) {
    mbarrier_init(
        is(Mistake::MisalignedMbarrier) ? reinterpret_cast<Mbarrier*>(shared + 4) : barrier,
        is(Mistake::NoArrivals) ? 0 : 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  const auto load = [&](unsigned char* to, unsigned bytes) {
    mbarrier_arrive_expect_tx(barrier, bytes);
    tma_load(to, &map, barrier, 0, 0);
  };
  constexpr unsigned kBytes = 8 * 128;
  float d[4];
  switch (mistake) {
    case Mistake::TooManyArrivals:
      if (!first) break;
      mbarrier_arrive_expect_tx(barrier, 16);
      mbarrier_arrive(barrier);
      break;
    case Mistake::TooManyBytes:
      if (first) mbarrier_expect_tx(barrier, 1 << 20);
      break;
    case Mistake::InitTwice:
      if (first) mbarrier_init(barrier, 1);
      break;
    case Mistake::UseAfterInval:
      if (first) mbarrier_inval(barrier);
      if (first) mbarrier_arrive(barrier);
      break;
    case Mistake::UseBeforeInit:
      if (first) mbarrier_arrive(barrier);
      break;
    case Mistake::BadParity:
      if (first) mbarrier_wait(barrier, 2);
      break;
    case Mistake::LappedWaiter:
      // Thread 32 waits for phase 0. Before it runs again, phases 0 and 1 are complete.
      if (threadIdx.x == 32) mbarrier_wait(barrier, 0);
      if (threadIdx.x >= 64) named_barrier_sync(1, 64);
      if (threadIdx.x == 64) mbarrier_arrive(barrier);
      if (threadIdx.x == 64) mbarrier_arrive(barrier);
      break;
    case Mistake::MbarrierDeadlock: mbarrier_wait(barrier, 0); break;
    case Mistake::MisalignedTarget:
      if (first) load(shared + 64, kBytes);
      break;
    case Mistake::TargetBeyondShared:
      if (first) load(shared + 8192, kBytes);
      break;
    case Mistake::WrongRank:
      if (first) tma_load(shared, &map, barrier, 0, 0, 0);
      break;
    case Mistake::WrongMode:
      if (first) tma_load_im2col(shared, &map, barrier, 0, 0, 0, 0, 0, 0);
      break;
    case Mistake::NoTensorMap: {
      const TensorMap other{};
      if (first) tma_load(shared, &other, barrier, 0, 0);
      break;
    }
    case Mistake::TwoCopiesToOnePlace:
      if (!first) break;
      load(shared, 2 * kBytes);
      tma_load(shared + 512, &map, barrier, 0, 0);
      break;
    case Mistake::ExitBeforeLanding:
      if (first) load(shared, kBytes);
      break;
    case Mistake::ExitBeforeReading:
    case Mistake::NoCommit:
      if (!first) break;
      load(shared, kBytes);
      mbarrier_wait(barrier, 0);
      tma_store(&map, shared, 0, 0);
      if (is(Mistake::ExitBeforeReading)) bulk_commit();
      break;
    case Mistake::BytesNobodyAnnounced:
      if (!first) break;
      tma_load(shared, &map, barrier, 0, 0);
      mbarrier_init(barrier + 1, 1);
      fence_mbarrier_init();
      mbarrier_arrive_expect_tx(barrier + 1, kBytes);
      tma_load(shared + kBytes, &map, barrier + 1, 0, 0);
      mbarrier_wait(barrier + 1, 0);
      // The schedule may land the first later; then the block exits before that.
      break;
    case Mistake::BulkOfOddBytes:
      if (first) bulk_load(shared, x, 24, barrier);
      break;
    case Mistake::BarrierNumber: named_barrier_sync(16, 128); break;
    case Mistake::BarrierOfOddThreads: named_barrier_sync(1, 100); break;
    case Mistake::BarrierOfTwoSizes: named_barrier_sync(1, threadIdx.x < 32 ? 64 : 96); break;
    case Mistake::PartOfWarpAtBarrier:
      if (threadIdx.x % 32 < 16) named_barrier_sync(1, 64);
      break;
    case Mistake::ArrivalNobodyWaitsFor:
      if (threadIdx.x < 32) named_barrier_arrive(1, 64);
      break;
    case Mistake::RegistersNoMultiple: set_max_registers_down<44>(); break;
    case Mistake::RegistersDownToMore: set_max_registers_down<256>(); break;
    case Mistake::RegistersNeverFree: set_max_registers_up<256>(); break;
    case Mistake::SmallWarpgroup:
    case Mistake::DifferentDescriptors:
    case Mistake::OperandBeyondShared: {
      uint64_t a = matrix_descriptor(shared, 128, 256, Swizzle::None);
      if (is(Mistake::DifferentDescriptors)) a += threadIdx.x / 32;
      if (is(Mistake::OperandBeyondShared))
        a = matrix_descriptor(shared + 8000, 128, 256, Swizzle::None);
      wgmma_fence();
      wgmma<__half, 0, 0>(d, a, a, 0);
      wgmma_commit();
      wgmma_wait<0>();
      break;
    }
    case Mistake::StmatrixAlignment:
      stmatrix_x4<false>(shared + threadIdx.x * 8, 0, 0, 0, 0);
      break;
    case Mistake::PartOfWarpElects:
      if (threadIdx.x % 32 != 5) elect_one();
      break;
    default: break;
  }
}

__global__ void cluster_mistake_kernel(int mistake) {
  DYNAMIC_SHARED(int, value);
  if (mistake == 0 && threadIdx.x == 0) *map_to_rank(value, 2) = 1;
  if (mistake == 1) cluster_wait();
  if (mistake == 2) cluster_arrive();
  if (mistake == 2) cluster_arrive();
  if (mistake == 3 && cluster_rank() == 0) cluster_sync();
  // Block 0 exits at once; block 1 reaches into it later.
  if (mistake == 4 && cluster_rank() == 1) {
    __syncthreads();
    if (threadIdx.x == 0) *map_to_rank(value, 0) = 1;
  }
}

}  // namespace
