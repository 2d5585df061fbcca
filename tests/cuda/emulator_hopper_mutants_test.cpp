// A product and a convolution that use all of Hopper's instructions, against plain loops, and each
// mistake of emulator_hopper_pipelines.cu. A table says which check notices which mistake.
#include <iterator>

#include "ringgrad/cuda_kernels/emulator/grid.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/emulator_hopper.h"
#include "ringgrad/tests/cuda/emulator_hopper_pipelines.cu"

namespace ringgrad::test::emulator_hopper_mutants_test {

namespace {

constexpr double kTolerance = 0.006;  // bfloat16 rounds to 2^-8 of a value

template <int kCluster>
std::string run_product(Mutant mutant, int m, int n, int k, unsigned blocks) {
  const auto a = noise(static_cast<size_t>(m * k), 1);
  const auto b = noise(static_cast<size_t>(n * k), 2);
  const DeviceArray<bf16> device_a(rounded<bf16>(a));
  const DeviceArray<bf16> device_b(rounded<bf16>(b));
  const DeviceArray<bf16> device_c(std::vector<bf16>(static_cast<size_t>(m * n), bf16(NAN)));
  const auto size = [](int x) { return static_cast<cuuint64_t>(x); };
  const auto map_a =
      tiled_map({.address = device_a.get(), .sizes = {size(k), size(m)}, .box = {kDepth, kRows}});
  const auto map_b = tiled_map({.address = device_b.get(),
                                .sizes = {size(k), size(n)},
                                .box = {kDepth, kColumns / kCluster}});
  const auto map_c = tiled_map({.address = device_c.get(),
                                .sizes = {size(n), size(m)},
                                .box = {32, 64},
                                .swizzle = CU_TENSOR_MAP_SWIZZLE_64B});
  const Tiles tiles{(m + kRows - 1) / kRows, (n + kColumns - 1) / kColumns,
                    (k + kDepth - 1) / kDepth};
  launch_with({.cluster = kCluster}, product_kernel<kCluster>, blocks, 384, kProductShared,
              current_stream(Device(DeviceType::CUDA)), mutant, tiles, map_a, map_b, map_c);
  std::vector<double> expected;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int x = 0; x < k; ++x) sum += double{a[i * k + x]} * b[j * k + x];
      expected.push_back(sum);
    }
  return difference(device_c.values(), expected) < kTolerance ? "" : "wrong result";
}

std::string run_convolution(Mutant mutant) {
  constexpr int kImages = 3;
  constexpr int kChannels = 64;
  const auto x = noise(kImages * kSide * kSide * kChannels, 3);
  const auto w = noise(64 * 9 * kChannels, 4);
  const DeviceArray<bf16> device_x(rounded<bf16>(x));
  const DeviceArray<bf16> device_w(rounded<bf16>(w));
  const DeviceArray<bf16> device_y(
      std::vector<bf16>(static_cast<size_t>(kImages * kSide * kSide * 64), bf16(NAN)));
  const std::vector<cuuint64_t> images = {kChannels, kSide, kSide, kImages};
  const auto map_x = tiled_map(
      {.address = device_x.get(), .sizes = images, .box = {64, kPitch, kTileRows + 2, 1}});
  const auto map_w =
      tiled_map({.address = device_w.get(), .sizes = {kChannels, 9, 64}, .box = {64, 1, 64}});
  const auto map_y =
      tiled_map({.address = device_y.get(), .sizes = images, .box = {64, kPitch, kTileRows, 1}});
  run(conv_kernel, mutant == Mutant::None ? 2 : 1, 384, kConvShared, mutant,
      kImages * kSide / kTileRows, map_x, map_w, map_y);
  std::vector<double> expected;
  for (int i = 0; i < kImages; ++i)
    for (int h = 0; h < kSide; ++h)
      for (int q = 0; q < kSide; ++q)
        for (int f = 0; f < 64; ++f) {
          double sum = 0;
          for (int tap = 0; tap < 9; ++tap) {
            const int row = h + tap / 3 - 1;
            const int column = q + tap % 3 - 1;
            if (row < 0 || column < 0 || row >= kSide || column >= kSide) continue;
            for (int c = 0; c < kChannels; ++c)
              sum += double{x[((i * kSide + row) * kSide + column) * kChannels + c]} *
                     w[(f * 9 + tap) * kChannels + c];
          }
          expected.push_back(sum);
        }
  return difference(device_y.values(), expected) < kTolerance ? "" : "wrong result";
}

std::string run_pipeline(Mutant mutant) {
  if (mutant >= Mutant::NoWaitForWeights) return run_convolution(mutant);
  if (mutant >= Mutant::MulticastToOne) return run_product<2>(mutant, 512, 128, 320, 2);
  return run_product<1>(mutant, 200, 128, 448, 1);  // one block fails first, always
}

// Returns what notices the mutant, or "".
std::string noticed(Mutant mutant) {
  for (const auto schedule : {Schedule::Forward, Schedule::Reversed, Schedule::Random}) {
    const ScheduleGuard guard(schedule);
    emulator::config().schedule_seed = 1;
    std::string found;
    const std::string error = failure([&] { found = run_pipeline(mutant); });
    if (!error.empty()) return error;
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace

TEST_CASE("emulator: a pipelined product and a convolution in every schedule", "[cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed, Schedule::Random));
  emulator::config().schedule_seed = GENERATE(1u, 2u, 3u);
  CHECK(run_product<1>(Mutant::None, 256, 192, 448, 3).empty());
  CHECK(run_product<1>(Mutant::None, 200, 100 / 8 * 8, 120, 2).empty());
  CHECK(run_product<2>(Mutant::None, 512, 128, 128, 4).empty());
  CHECK(run_product<4>(Mutant::None, 512, 64, 320, 4).empty());
  CHECK(run_convolution(Mutant::None).empty());
}

namespace {

constexpr const char* kLanding = "an operand at byte";
constexpr const char* kChanged = "has changed while a product that reads it was in flight";
constexpr const char* kSource = "has changed before the store has read it";
constexpr const char* kArrivals = "too many arrivals";
constexpr const char* kDeadlock = "deadlock in block";
constexpr const char* kNoMbarrier = "no mbarrier has been initialised there";
constexpr const char* kProxy = "fence_proxy_async is missing";
constexpr const char* kWrong = "wrong result";

struct Notice {
  Mutant mutant;
  const char* says;
};
// The check that notices each mistake first.
constexpr Notice kNotices[] = {
    {Mutant::NoWaitForFull, kLanding},
    {Mutant::NoWaitForEmpty, kArrivals},
    {Mutant::ReleasedEarly, kChanged},
    {Mutant::ReleasedByOneWarp, kChanged},
    {Mutant::NoLastWait, kChanged},
    {Mutant::NoWait, kChanged},
    {Mutant::NoFence, "wgmma_fence is missing"},
    {Mutant::NoCommit, "products in flight: wgmma_wait is missing"},
    {Mutant::SliceOverwritten, kSource},
    {Mutant::NoBarrierBeforeStore, kSource},
    {Mutant::NoProxyFence, kProxy},
    {Mutant::ProxyFenceAfterBarrierOfOne, kProxy},
    {Mutant::TooFewBytes, kDeadlock},
    {Mutant::TooManyBytes, kDeadlock},
    {Mutant::WrongPhaseOfFull, kLanding},
    {Mutant::WrongPhaseOfEmpty, kDeadlock},
    {Mutant::PhaseNotFlipped, kArrivals},
    {Mutant::TooFewArrivalsExpected, kChanged},
    {Mutant::TooManyArrivalsExpected, kDeadlock},
    {Mutant::NoInit, kNoMbarrier},
    {Mutant::NoInitFence, "fence_mbarrier_init is missing"},
    {Mutant::NoBarrierAfterInit, kNoMbarrier},
    {Mutant::BarrierBeforeInit, kNoMbarrier},
    {Mutant::NoCommitOfStore, "bulk_commit has not committed"},
    {Mutant::NoLastStoreWait, "bulk_wait_read is missing"},
    {Mutant::WrongSwizzleOfStore, kWrong},
    {Mutant::WrongStride, kWrong},
    {Mutant::WrongAdvanceOfK, kChanged},
    {Mutant::StageOffset, kLanding},
    {Mutant::NamedBarrierOfTooMany, kDeadlock},
    {Mutant::NamedBarrierShared, "only some lanes of warp"},
    {Mutant::RegistersUpFirst, kDeadlock},
    {Mutant::TooManyRegisters, kDeadlock},
    {Mutant::AccumulateAlways, kWrong},
    {Mutant::TouchedSums, "an accumulator has been written"},
    {Mutant::MulticastToOne, kDeadlock},
    {Mutant::MulticastHalfOffset, "in which another has yet to land"},
    {Mutant::ArriveOnlyLocally, kChanged},
    {Mutant::NoClusterSyncAtEnd, "of the cluster has exited"},
    {Mutant::NoClusterSyncAtBegin, kNoMbarrier},
    {Mutant::ArriveAtWrongRank, kChanged},
    {Mutant::NoWaitForWeights, kLanding},
    {Mutant::TileReusedEarly, kChanged},
    {Mutant::TileReleasedEarly, "that a store has yet to read"},
    {Mutant::WrongPhaseOfTile, kDeadlock},
    {Mutant::ShiftedTap, kWrong},
    {Mutant::NoBorder, kWrong},
    {Mutant::WeightsOverlap, "in which another has yet to land"},
    {Mutant::NoTransposition, kWrong},
};
static_assert(std::size(kNotices) == static_cast<size_t>(Mutant::NoTransposition));

}  // namespace

TEST_CASE("emulator: every mistake in the use of Hopper's instructions is noticed", "[cuda]") {
  if (emulator::observer) return;  // it may be quicker
  for (const auto& [mutant, says] : kNotices) {
    const std::string found = noticed(mutant);
    INFO(static_cast<int>(mutant) << ": " << found);
    CHECK(contains(found, says));
  }
}

}  // namespace ringgrad::test::emulator_hopper_mutants_test
