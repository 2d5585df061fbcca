// The emulator names mistakes with Hopper's instructions, and with tensor maps.
#include "ringgrad/tests/cuda/emulator_hopper_mistakes.cu"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/emulator_hopper.h"

namespace ringgrad::test::emulator_hopper_mistakes_test {

TEST_CASE("emulator: mistakes with Hopper's instructions are named", "[quick][cuda]") {
  struct Case {
    Mistake mistake;
    int threads;
    std::string says;
  };
  const std::vector<Case> cases = {
      {Mistake::MisalignedMbarrier, 32, "no multiple of 8"},
      {Mistake::NoArrivals, 32, "mbarrier_init for 0 arrivals"},
      {Mistake::TooManyArrivals, 32, "too many arrivals (phase 0: 1 of 1 arrivals have come, 16"},
      {Mistake::TooManyBytes, 32, "more than 1048575 bytes in a phase"},
      {Mistake::InitTwice, 32, "mbarrier_inval must come first"},
      {Mistake::UseAfterInval, 32, "no mbarrier has been initialised there"},
      {Mistake::UseBeforeInit, 32, "no mbarrier has been initialised there"},
      {Mistake::BadParity, 32, "parity 2"},
      {Mistake::LappedWaiter, 128, "phase 1 is complete before this thread has run"},
      {Mistake::MbarrierDeadlock, 32, "32 wait in mbarrier_wait at emulator_hopper_mistakes.cu"},
      {Mistake::MbarrierDeadlock, 32, "(phase 0: 0 of 1 arrivals have come, 0 announced"},
      {Mistake::MisalignedTarget, 32, "expected a multiple of 128"},
      {Mistake::TargetBeyondShared, 32, "of the block's dynamic shared memory"},
      {Mistake::WrongRank, 32, "with 3 coordinates of a tensor map of rank 2"},
      {Mistake::WrongMode, 32, "tensor map"},
      {Mistake::NoTensorMap, 32, "no tensor map"},
      {Mistake::TwoCopiesToOnePlace, 32, "in which another has yet to land"},
      {Mistake::ExitBeforeLanding, 32, "exits before the copy has landed"},
      {Mistake::ExitBeforeReading, 32, "bulk_wait_read is missing"},
      {Mistake::NoCommit, 32, "bulk_commit has not committed"},
      {Mistake::BulkOfOddBytes, 32, "expected multiples of 16"},
      {Mistake::BarrierNumber, 128, "barrier 16, a block has 16"},
      {Mistake::BarrierOfOddThreads, 128, "expected a multiple of 32"},
      {Mistake::BarrierOfTwoSizes, 128, "at which others meet"},
      {Mistake::PartOfWarpAtBarrier, 128, "only some lanes of warp"},
      {Mistake::ArrivalNobodyWaitsFor, 128, "32 of 64 threads have arrived at barrier 1"},
      {Mistake::RegistersNoMultiple, 128, "expected a multiple of 8"},
      {Mistake::RegistersDownToMore, 512, "setmaxnreg.dec to 256 of a warp that has 128"},
      {Mistake::RegistersNeverFree, 384, "wait in setmaxnreg.inc"},
      {Mistake::SmallWarpgroup, 96, "this block has 96 threads"},
      {Mistake::DifferentDescriptors, 128, "the warps of the warpgroup pass different descriptors"},
      {Mistake::OperandBeyondShared, 128, "an operand reaches byte"},
      {Mistake::StmatrixAlignment, 32, "stmatrix: the row's address is not aligned"},
      {Mistake::PartOfWarpElects, 32, "the whole warp must take part"},
  };
  const DeviceArray<float> x(64 * 8);
  const CUtensorMap map = tiled_map({.address = x.get(), .sizes = {64, 8}, .box = {64, 8}});
  const auto run_with = [&](Mistake mistake, int threads) {
    run(mistake_kernel, 1, static_cast<unsigned>(threads), 8192 + kSharedSlack, mistake, map,
        static_cast<const float*>(x.get()));
  };
  for (const auto& [mistake, threads, says] : cases) {
    const std::string message = failure([&] { run_with(mistake, threads); });
    INFO(static_cast<int>(mistake) << ": " << message);
    CHECK(contains(message, says));
  }
  // The same kernel and map without a mistake, and after all of them.
  run_with(Mistake::None, 128);
}

TEST_CASE("emulator: mistakes in clusters are named", "[quick][cuda]") {
  const auto stream = current_stream(Device(DeviceType::CUDA));
  const char* const says[] = {"block 2 of a cluster of 2", "cluster_wait without cluster_arrive",
                              "cluster_arrive again", "32 wait in cluster_wait",
                              "block 0 of the cluster has exited"};
  for (int i = 0; i < 5; ++i) {
    const std::string message =
        failure([&] { launch_with({.cluster = 2}, cluster_mistake_kernel, 2, 32, 64, stream, i); });
    INFO(message);
    // If block 1 has exited, those of block 0 that arrive are enough.
    if (i == 3)
      CHECK((message.empty() || contains(message, says[i])));
    else
      CHECK(contains(message, says[i]));
  }
}

TEST_CASE("emulator: the rules of tensor maps are named", "[quick][cuda]") {
  const DeviceArray<uint16_t> x(1024);
  const MapOf good{.address = x.get(), .sizes = {64, 4, 2}, .box = {64, 4, 1}};
  tiled_map(good);
  const auto refused = [&](auto change) {
    MapOf map = good;
    change(map);
    return failure([&] { tiled_map(map); });
  };
  CHECK(contains(refused([](MapOf& m) { m.address = static_cast<char*>(m.address) + 8; }),
                 "globalAddress"));
  CHECK(contains(refused([](MapOf& m) { m.sizes = {60, 4, 2}; }), "globalStrides[0] is 120"));
  CHECK(contains(refused([](MapOf& m) { m.sizes = {64, 0, 2}; }), "globalDim[1] is 0"));
  CHECK(contains(refused([](MapOf& m) { m.box = {64, 257, 1}; }), "boxDim[1] is 257"));
  CHECK(contains(refused([](MapOf& m) { m.box = {4, 4, 1}; }), "expected a multiple of 16"));
  CHECK(contains(refused([](MapOf& m) { m.swizzle = CU_TENSOR_MAP_SWIZZLE_64B; }),
                 "more than the swizzle's 64"));
  CHECK(contains(refused([](MapOf& m) { m.steps = {1, 9, 1}; }), "elementStrides[1] is 9"));
  CHECK(contains(refused([](MapOf& m) { m.sizes = {8, 2, 2, 2, 2, 2}; }), "rank 6"));

  const auto im2col = [&](int low, int high, cuuint32_t channels, cuuint32_t pixels) {
    const cuuint64_t sizes[] = {16, 4, 4, 2};
    const cuuint64_t strides[] = {32, 128, 512};
    const int lower[] = {low, low};
    const int upper[] = {high, high};
    const cuuint32_t steps[] = {1, 1, 1, 1};
    CUtensorMap map;
    return failure([&] {
      expect_map(cuTensorMapEncodeIm2col(
          &map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, x.get(), sizes, strides, lower, upper, channels,
          pixels, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_32B,
          CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    });
  };
  CHECK(contains(im2col(-129, 0, 16, 64), "pixelBoxLowerCorner[0] is -129"));
  CHECK(contains(im2col(0, 128, 16, 64), "pixelBoxUpperCorner[0] is 128"));
  CHECK(contains(im2col(2, -2, 16, 64), "is empty"));
  CHECK(contains(im2col(0, 0, 257, 64), "channelsPerPixel is 257"));
  CHECK(contains(im2col(0, 0, 16, 1025), "pixelsPerColumn is 1025"));
  CHECK(contains(im2col(0, 0, 32, 64), "more than the swizzle's 32"));
}

TEST_CASE("emulator: a tensor map that reaches beyond its memory", "[quick][cuda]") {
  const DeviceArray<uint16_t> x(64 * 7);
  const CUtensorMap map = tiled_map({.address = x.get(), .sizes = {64, 8}, .box = {64, 8}});
  CHECK(contains(failure([&] {
                   run(mistake_kernel, 1, 32, 8192 + kSharedSlack, Mistake::ExitBeforeLanding, map,
                       static_cast<const float*>(nullptr));
                 }),
                 "reaches 128 bytes beyond an allocation of 896"));
}

}  // namespace ringgrad::test::emulator_hopper_mistakes_test
