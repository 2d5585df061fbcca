// The emulator's scheduler: the waits of a CUDA thread, and the reports of waits that cannot end.
#include <cmath>
#include <vector>

#include "ringgrad/cuda_kernels/emulator/config.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/emulator_block_kernels.cu"
#include "ringgrad/tests/cuda/emulator_util.h"

namespace ringgrad::test::emulator_block_test {

TEST_CASE("emulator: every thread of every block runs once with its own indices", "[quick][cuda]") {
  const auto schedule = GENERATE(Schedule::Forward, Schedule::Reversed, Schedule::Random);
  const ScheduleGuard guard(schedule);
  const dim3 grid(3, 2, 2);
  const dim3 block(5, 7, 2);
  DeviceArray<int> out(12 * 70);
  run(indices_kernel, grid, block, 0, out.get());
  const auto values = out.values();
  for (int b = 0, i = 0; b < 12; ++b)
    for (int z = 0; z < 2; ++z)
      for (int y = 0; y < 7; ++y)
        for (int x = 0; x < 5; ++x, ++i)
          REQUIRE(values[i] == x + 100 * y + 10000 * z + 1000000 * (b % 3));
}

TEST_CASE("emulator: threads that exit do not hold up the barrier, and enter once",
          "[quick][cuda]") {
  const auto schedule = GENERATE(Schedule::Forward, Schedule::Reversed, Schedule::Random);
  const ScheduleGuard guard(schedule);
  DeviceArray<int> entries(std::vector<int>(64, 0));
  DeviceArray<int> out(std::vector<int>(64, -1));
  run(early_exit_kernel, 1, 64, 0, entries.get(), out.get());
  REQUIRE(entries.values() == std::vector<int>(64, 1));
  const auto values = out.values();
  for (int t = 0; t < 64; ++t) REQUIRE(values[t] == (t % 2 ? -1 : (t + 2) % 64));
}

TEST_CASE("emulator: a divergent barrier is an error that names both lines", "[quick][cuda]") {
  const std::string message = failure([] { run(divergent_kernel, 1, 32, 0); });
  REQUIRE(contains(message, "divergent __syncthreads"));
  const size_t first = message.find("emulator_block_kernels.cu:");
  REQUIRE(first != std::string::npos);
  REQUIRE(message.find("emulator_block_kernels.cu:", first + 1) != std::string::npos);
  // The scheduler has recovered.
  DeviceArray<int> entries(std::vector<int>(64, 0));
  DeviceArray<int> out(64);
  run(early_exit_kernel, 1, 64, 0, entries.get(), out.get());
  REQUIRE(entries.values() == std::vector<int>(64, 1));
}

TEST_CASE("emulator: threads that wait for each other in vain are listed", "[quick][cuda]") {
  const std::string message = failure([] { run(deadlock_kernel, 1, 64, 0); });
  REQUIRE(contains(message, "deadlock in block (0, 0, 0)"));
  REQUIRE(contains(message, "33 wait in __syncthreads at emulator_block_kernels.cu:"));
  REQUIRE(contains(message, "31 wait in __syncwarp at emulator_block_kernels.cu:"));
  REQUIRE(contains(message, "of 64 threads 0 have exited"));
}

TEST_CASE("emulator: a forgotten barrier shows as a wrong result", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  const auto reversed_three_times = [](bool after_write, bool after_read) {
    DeviceArray<int> out(96);
    run(reverse_kernel, 1, 96, 0, out.get(), after_write, after_read);
    const auto values = out.values();
    for (int t = 0; t < 96; ++t)
      if (values[t] != 95 - t) return false;
    return true;
  };
  REQUIRE(reversed_three_times(true, true));
  REQUIRE_FALSE(reversed_three_times(false, true));  // read before write
  // Write before read, seen because warps run ahead.
  REQUIRE_FALSE(reversed_three_times(true, false));
}

TEST_CASE("emulator: dynamic shared memory has the size asked for and starts undefined",
          "[quick][cuda]") {
  for (const int n : {1, 100, 30000}) {
    DeviceArray<float> out(n + 1);
    run(dynamic_shared_kernel, 1, 64, n * sizeof(float), out.get(), n);
    const auto values = out.values();
    for (int i = 0; i < n; ++i) REQUIRE(values[i] == 2.0f * static_cast<float>(n - 1 - i));
    REQUIRE(std::isnan(values[n]));
  }
}

TEST_CASE("emulator: asynchronous copies arrive when they are waited for, and not before",
          "[quick][cuda]") {
  std::vector<float> x(128);
  for (int i = 0; i < 128; ++i) x[i] = static_cast<float>(i);
  DeviceArray<float> source(x);
  DeviceArray<float> target(128);
  run(async_copy_kernel, 1, 32, 0, source.get(), target.get(), true);
  x[126] = x[127] = 0;  // the last thread fills 8 of its 16 bytes with zeros
  REQUIRE(target.values() == x);
  run(async_copy_kernel, 1, 32, 0, source.get(), target.get(), false);
  for (const float value : target.values()) REQUIRE(std::isnan(value));

  REQUIRE(contains(failure([&] { run(unfinished_copy_kernel, 1, 1, 0, source.get()); }),
                   "copies in flight"));
  REQUIRE(contains(failure([&] { run(misaligned_copy_kernel, 1, 1, 0, source.get()); }),
                   "aligned to 16"));
}

TEST_CASE("emulator: wrong launch configurations are errors", "[quick][cuda]") {
  DeviceArray<int> out(64);
  REQUIRE(
      contains(failure([&] { run(indices_kernel, 1, 1025, 0, out.get()); }), "block (1025, 1, 1)"));
  REQUIRE(contains(failure([&] { run(indices_kernel, dim3(1, 70000), 1, 0, out.get()); }),
                   "grid (1, 70000, 1)"));
  REQUIRE(contains(failure([&] { run(indices_kernel, 1, 1, 300 * 1024, out.get()); }),
                   "bytes of shared memory"));
  run(indices_kernel, 0, 32, 0, out.get());  // no blocks: nothing happens
}

}  // namespace ringgrad::test::emulator_block_test
