// Warp collectives (each concerns the lanes of its mask only), atomics and 16-bit arithmetic under
// the emulator.
#include <cmath>
#include <numeric>

#include "ringgrad/cuda_kernels/emulator/config.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/emulator_util.h"
#include "ringgrad/tests/cuda/emulator_warp_kernels.cu"

namespace ringgrad::test::emulator_warp_test {
using emulator::Schedule;

TEST_CASE("emulator: shuffles follow their definition", "[quick][cuda]") {
  DeviceArray<int> out(5 * 64);
  run(shuffles_kernel, 1, 64, 0, out.get());
  const auto values = out.values();
  for (int t = 0; t < 64; ++t) {
    REQUIRE(values[t] == t / 32 * 32 + 5);
    REQUIRE(values[t + 64] == t / 8 * 8 + 1);
    REQUIRE(values[t + 128] == (t % 16 + 3 < 16 ? t + 3 : t));
    REQUIRE(values[t + 192] == (t % 16 >= 3 ? t - 3 : t));
    REQUIRE(values[t + 256] == (t ^ 6));
  }
}

TEST_CASE("emulator: disjoint masks of one warp work independently", "[quick][cuda]") {
  emulator::config().schedule = GENERATE(Schedule::Forward, Schedule::Reversed, Schedule::Random);
  DeviceArray<int> out(42);
  run(groups_kernel, 1, 32, 0, out.get());
  emulator::config().schedule = Schedule::Forward;
  const auto values = out.values();
  for (int lane = 0; lane < 32; ++lane) REQUIRE(values[lane] == (lane < 10 ? 5 * 5 : 2 * 11));
  for (int lane = 0; lane < 10; ++lane) REQUIRE(values[32 + lane] == 1);
}

TEST_CASE("emulator: a full mask means the lanes that exist and have not exited", "[quick][cuda]") {
  DeviceArray<double> out(12);
  run(partial_warp_kernel, 1, 12, 0, out.get());
  const auto values = out.values();
  for (int lane = 0; lane < 12; ++lane)
    REQUIRE(values[lane] == (lane ^ 1) + (lane == 11 ? 0 : 100));
}

TEST_CASE("emulator: misused warp collectives are errors that name the line", "[quick][cuda]") {
  const auto message_of = [](void (*kernel)()) {
    const std::string message = failure([&] { run(kernel, 1, 3, 0); });
    REQUIRE(contains(message, "emulator_warp_kernels.cu:"));
    return message;
  };
  REQUIRE(
      contains(message_of(outside_mask_kernel), "lane 1 reads lane 0, which is not in the mask"));
  REQUIRE(
      contains(message_of(not_in_mask_kernel), "the calling lane 1 is not in the mask 0x00000001"));
  REQUIRE(contains(message_of(different_masks_kernel), "mask 0x00000007 meets mask 0x00000003"));
  REQUIRE(contains(message_of(different_kinds_kernel), "called __syncwarp"));
}

TEST_CASE("emulator: atomics are atomic between blocks", "[quick][cuda]") {
  DeviceArray<int> counters(std::vector<int>(7, 0));
  DeviceArray<int> order(std::vector<int>(40 * 96, 0));
  DeviceArray<float> sums(std::vector<float>(1, 0));
  run(atomics_kernel, 40, 96, 0, counters.get(), sums.get(), order.get());
  REQUIRE(counters.values() == std::vector<int>{1280, 1280, 1280, 95, -95, 3840, 7680});
  REQUIRE(sums.values()[0] == 1920.0f);
  const auto ones = order.values();
  REQUIRE(std::accumulate(ones.begin(), ones.end(), 0) == 40 * 96);
}

TEST_CASE("emulator: 16-bit arithmetic rounds after each operation", "[quick][cuda]") {
  DeviceArray<float> y(4);
  const auto compute = [&](auto kernel, float a, float b) {
    DeviceArray<float> x(std::vector<float>{a, b});
    run(kernel, 1, 1, 0, x.get(), y.get());
    return y.values();
  };
  // float16 has 11 significant bits, bfloat16 8: neither sum is representable; ties go to even.
  REQUIRE(compute(sixteen_bit_kernel<__half>, 2048, 1)[0] == 2048);
  REQUIRE(compute(sixteen_bit_kernel<__half>, 2048, 3)[0] == 2052);
  REQUIRE(compute(sixteen_bit_kernel<__nv_bfloat16>, 256, 1)[0] == 256);
  REQUIRE(compute(sixteen_bit_kernel<__nv_bfloat16>, 256, 3)[0] == 260);
  REQUIRE(std::isinf(compute(sixteen_bit_kernel<__half>, 60000, 2)[1]));
  REQUIRE(compute(sixteen_bit_kernel<__nv_bfloat16>, 60000, 2)[1] == 119808);
  REQUIRE(compute(sixteen_bit_kernel<__half>, 1, 3)[3] == 0x1.554p-2f);
}

}  // namespace ringgrad::test::emulator_warp_test
