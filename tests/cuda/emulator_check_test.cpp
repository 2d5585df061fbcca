// The memory checker and the race checker of the emulator. This program has their code even if
// others lack it.
#include "ringgrad/core/device/access_counter.h"
#include "ringgrad/cuda_kernels/emulator/grid.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/emulator_check_kernels.cu"
#include "ringgrad/tests/cuda/emulator_util.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

void require_race(const std::string& message, const std::string& kind) {
  INFO(message);
  REQUIRE(contains(message, "race in " + kind));
  REQUIRE(contains(message, "the other access is at emulator_check_kernels.cu:"));
}

}  // namespace

TEST_CASE("emulator check: accesses outside of every allocation", "[quick][cuda]") {
  if (!emulator::observer) return;  // a build with sanitizers of its own
  DeviceArray<float> x(100);
  DeviceArray<float> y(100);
  run(beyond_kernel, 4, 32, 0, x.get(), 100);
  const std::string beyond = failure([&] { run(beyond_kernel, 4, 32, 0, x.get(), 101); });
  INFO(beyond);
  REQUIRE(contains(beyond, "emulator_check_kernels.cu:"));
  REQUIRE(contains(beyond, "write of 4 bytes by block (3, 0, 0), thread (4, 0, 0)"));
  const std::vector<float> host(32);
  REQUIRE(contains(failure([&] { run(read_kernel, 1, 32, 0, host.data(), y.get()); }),
                   "memory that no allocation"));
  const float on_stack[32] = {};
  REQUIRE(contains(failure([&] { run(read_kernel, 1, 32, 0, &on_stack[0], y.get()); }),
                   "memory that no allocation"));
  CUDA_CHECK(cudaSetDevice(1));
  {
    DeviceArray<float> elsewhere(32);
    const std::string message =
        failure([&] { run(read_kernel, 1, 32, 0, elsewhere.get(), y.get()); });
    REQUIRE(contains(message, "memory of device 1 by device 0 without peer access"));
  }
  CUDA_CHECK(cudaSetDevice(0));
}

TEST_CASE("emulator check: races in shared memory", "[quick][cuda]") {
  if (!emulator::observer) return;
  DeviceArray<float> out(128);
  run(shared_race_kernel, 1, 64, 0, out.get(), true, true);
  require_race(failure([&] { run(shared_race_kernel, 1, 64, 0, out.get(), false, true); }),
               "shared memory: read after");
  require_race(failure([&] { run(shared_race_kernel, 1, 64, 0, out.get(), true, false); }),
               "shared memory: write after");
  // Two blocks: the same address, two memories.
  run(dynamic_race_kernel, 2, 64, 64 * sizeof(float), out.get(), true);
  require_race(
      failure([&] { run(dynamic_race_kernel, 1, 64, 64 * sizeof(float), out.get(), false); }),
      "shared");
  run(warp_race_kernel, 1, 64, 0, out.get(), true);
  require_race(failure([&] { run(warp_race_kernel, 1, 64, 0, out.get(), false); }),
               "shared memory");
}

TEST_CASE("emulator check: addresses that are not aligned to what is loaded from them",
          "[quick][cuda]") {
  if (!emulator::observer) return;
  DeviceArray<float> x(std::vector<float>(65, 1));
  DeviceArray<float> y(32);
  run(pair_kernel, 1, 32, 0, x.get(), y.get());
  const std::string message = failure([&] { run(pair_kernel, 1, 32, 0, x.get() + 1, y.get()); });
  INFO(message);
  REQUIRE(contains(
      message,
      "read of 8 bytes by block (0, 0, 0), thread (0, 0, 0): an address that is no multiple of 8"));
}

TEST_CASE("emulator check: shared memory that a block reads and has not written", "[quick][cuda]") {
  if (!emulator::observer) return;
  DeviceArray<float> out(128);
  run(unwritten_kernel, 1, 64, 0, out.get());
  const std::string message = failure([&] { run(unwritten_kernel, 2, 64, 0, out.get()); });
  INFO(message);
  REQUIRE(contains(
      message,
      "by block (1, 0, 0), thread (0, 0, 0): shared memory that the block has not written"));
}

TEST_CASE("emulator check: static and dynamic shared memory have one limit", "[quick][cuda]") {
  if (!emulator::observer) return;
  const DeviceArray<float> y(64);
  const auto with_dynamic = [&](size_t bytes) { run(large_static_kernel, 1, 64, bytes, y.get()); };
  with_dynamic(48 * 1024 - 40'000);
  CHECK(
      contains(failure([&] { with_dynamic(48 * 1024 - 40'000 + 16); }),
               "40000 bytes of static and 9168 of dynamic shared memory, expected at most 49152"));
  with_dynamic(227 * 1024 - 40'000);
  CHECK(contains(failure([&] { with_dynamic(227 * 1024 - 40'000 + 16); }),
                 "expected at most 232448"));
}

TEST_CASE("emulator check: races between blocks", "[quick][cuda]") {
  if (!emulator::observer) return;
  DeviceArray<float> total(std::vector<float>{0});
  DeviceArray<unsigned char> bytes(64);
  run(block_race_kernel, 5, 32, 0, total.get(), true);
  require_race(failure([&] { run(block_race_kernel, 5, 32, 0, total.get(), false); }),
               "global memory");
  run(bytes_kernel, 1, 64, 0, bytes.get());
}

TEST_CASE("emulator check: the last block sees what others have written behind two fences",
          "[quick][cuda]") {
  if (!emulator::observer) return;
  DeviceArray<float> parts(5 * 64);
  DeviceArray<float> out(64);
  DeviceArray<unsigned> counter(std::vector<unsigned>{0});
  const auto run_with = [&](bool barrier, bool release, bool acquire) {
    return failure([&] {
      run(last_block_kernel, 5, 64, 0, parts.get(), counter.get(), out.get(), barrier, release,
          acquire);
    });
  };
  for (int launch = 0; launch < 2; ++launch) {  // the counter is zero again
    REQUIRE(run_with(true, true, true) == "");
    REQUIRE(out.values() == std::vector<float>(64, 5));
  }
  require_race(run_with(false, true, true), "global memory: read after");
  require_race(run_with(true, false, true), "global memory: read after");
  require_race(run_with(true, true, false), "global memory: read after");
}

TEST_CASE("emulator check: asynchronous copies", "[quick][cuda]") {
  if (!emulator::observer) return;
  DeviceArray<float> x(std::vector<float>(128, 1));
  DeviceArray<float> y(32);
  run(async_copy_race_kernel, 1, 32, 0, x.get(), y.get(), true);
  require_race(failure([&] { run(async_copy_race_kernel, 1, 32, 0, x.get(), y.get(), false); }),
               "shared memory");
  DeviceArray<float> short_x(std::vector<float>(100, 1));
  REQUIRE(contains(
      failure([&] { run(async_copy_race_kernel, 1, 32, 0, short_x.get(), y.get(), true); }),
      "no allocation"));
}

TEST_CASE("emulator check: the two ways to shared memory", "[quick][cuda]") {
  if (!emulator::observer) return;
  DeviceArray<float> out(64);
  const auto store = [&](bool fence, bool barrier) {
    return failure(
        [&] { run(tile_store_kernel, 1, 64, 64 * sizeof(float), out.get(), fence, barrier); });
  };
  REQUIRE(store(true, true) == "");
  REQUIRE(out.values()[63] == 63);
  REQUIRE(contains(store(false, true), "fence_proxy_async is missing"));
  // Other threads write after the store has begun, which is noticed when it reads.
  REQUIRE(contains(store(true, false), "has changed before the store has read it"));
  // A source that has been read may be used again, before the store has ended.
  for (const auto schedule : {Schedule::Forward, Schedule::Reversed}) {
    const ScheduleGuard guard(schedule);
    run(tile_reuse_kernel, 1, 64, 64 * sizeof(float), out.get());
    REQUIRE(out.values()[63] == 63);
  }

  DeviceArray<float> x(std::vector<float>(64, 2));
  const auto load = [&](bool all_wait, bool meet) {
    return failure([&] {
      run(tile_load_kernel, 1, 64, 65 * sizeof(float) + 12, x.get(), out.get(), all_wait, meet);
    });
  };
  REQUIRE(load(true, true) == "");
  REQUIRE(out.values() == std::vector<float>(64, 3));
  require_race(load(false, true), "shared memory: read after write");
  require_race(load(true, false), "shared memory");
}

TEST_CASE("emulator check: a launch that overlaps the one before it", "[quick][cuda]") {
  if (!emulator::observer) return;
  const auto stream = current_stream(Device(DeviceType::CUDA));
  DeviceArray<float> x(std::vector<float>(32, 1));
  DeviceArray<float> y(32);
  DeviceArray<float> z(32);
  const auto run_both = [&](float* to, bool wait) {
    return failure([&] {
      run(previous_launch_kernel, 1, 32, 0, x.get(), y.get(), false);
      cuda::launch_with({.overlaps_previous = true}, previous_launch_kernel, 1, 32, 0, stream,
                        to == z.get() ? y.get() : z.get(), to, wait);
      CUDA_CHECK(cudaDeviceSynchronize());
    });
  };
  REQUIRE(run_both(z.get(), true) == "");
  REQUIRE(contains(run_both(z.get(), false),
                   "memory that the launch before writes: wait_for_previous_launch is missing"));
  REQUIRE(contains(run_both(x.get(), false),
                   "memory that the launch before reads: wait_for_previous_launch is missing"));
}

TEST_CASE("emulator check: static shared memory in a cluster", "[quick][cuda]") {
  if (!emulator::observer) return;
  DeviceArray<float> y(32);
  const auto stream = current_stream(Device(DeviceType::CUDA));
  REQUIRE(contains(failure([&] {
                     cuda::launch_with({.cluster = 2}, static_in_cluster_kernel, 2, 32, 0, stream,
                                       y.get());
                   }),
                   "static shared memory in a cluster"));
}

// A product of 64 columns takes the tensor cores 32 clocks. It reads 2 KB of a and 2 KB of b.
TEST_CASE("emulator check: the costs of Hopper's instructions are counted", "[quick][cuda]") {
  if (!count_accesses) return;
  DeviceArray<float> x(std::vector<float>(1024, 0));
  const KernelCounts counts = count_accesses([&] {
    run(counted_product_kernel, 3, 128, 4096 + 64 + cuda::kSharedSlack, x.get());
    CUDA_CHECK(cudaDeviceSynchronize());
  });
  const auto of = [&](const char* kind) { return counts.instructions.at(kind); };
  CHECK(of("wgmma") == 3 * 4);  // by warp
  CHECK(of("tensor clocks") == 3 * 32);
  CHECK(of("shared bytes") == 3 * (4096 + 2 * 2048));
  CHECK(of("L2 bytes") == 3 * 4096);
}

TEST_CASE("emulator check: sectors and bank conflicts are counted", "[quick][cuda]") {
  if (!count_accesses) return;
  DeviceArray<float> x(std::vector<float>(64 * 8, 1));
  DeviceArray<float> y(64);
  const auto counts_of = [&](int stride, int pitch) {
    return count_accesses([&] {
      run(strides_kernel, 1, 64, static_cast<size_t>(64 * pitch) * sizeof(float), x.get(), y.get(),
          stride, pitch);
      CUDA_CHECK(cudaDeviceSynchronize());
    });
  };
  struct Case {
    int stride;
    int pitch;
    // of two requests, of a warp each
    int64_t sectors;
    int64_t passes;
  };
  // Neighbours are four sectors; every second float is eight; one in 32 bytes is a sector each.
  // Words 1 and 33 apart lie in different banks, 2 apart in 16 of them, 32 apart in one.
  for (const Case& c :
       {Case{1, 1, 8, 2}, Case{2, 33, 16, 2}, Case{8, 2, 64, 4}, Case{1, 32, 8, 64}}) {
    const KernelCounts counts = counts_of(c.stride, c.pitch);
    INFO("stride " << c.stride << ", pitch " << c.pitch);
    REQUIRE(counts.launches == 1);
    REQUIRE(counts.threads == 64);
    const AccessCount load = counts.total(false, false);
    const AccessCount store = counts.total(false, true);
    REQUIRE(load.requests == 2);
    REQUIRE(load.bytes == 256);
    REQUIRE(load.sectors == c.sectors);
    REQUIRE(store.sectors == 8);
    for (const bool write : {false, true}) {
      const AccessCount shared = counts.total(true, write);
      REQUIRE(shared.requests == 2);
      REQUIRE(shared.passes == c.passes);
      REQUIRE(shared.least_passes == 2);
    }
    REQUIRE(counts.instructions == std::map<std::string, int64_t>{{"__syncthreads", 1}});
    for (const AccessCount& access : counts.accesses)
      REQUIRE(access.line.starts_with("emulator_check_kernels.cu:"));
  }
}

// A request is split into 128 bytes: 8 lanes of 16 bytes, or 16 of 8. In rows of 80 bytes that four
// lanes read, the first row's 16 words share 4 banks with the second row's. Over the whole warp
// this would not show, because its 128 words lie evenly in the banks.
TEST_CASE("emulator check: bank conflicts are those of 128 bytes of lanes", "[quick][cuda]") {
  if (!count_accesses) return;
  struct Case {
    int words;
    int lanes_of_row;
    int pitch;
    int64_t passes;
    int64_t least;
  };
  for (const Case& c :
       {Case{4, 4, 16, 4, 4}, Case{4, 4, 20, 8, 4}, Case{4, 1, 20, 4, 4}, Case{4, 1, 8, 8, 4},
        Case{4, 1, 32, 32, 4}, Case{2, 8, 16, 2, 2}, Case{2, 8, 20, 4, 2}, Case{2, 1, 4, 4, 2},
        Case{2, 1, 32, 32, 2}, Case{1, 32, 32, 1, 1}, Case{1, 16, 20, 2, 1}}) {
    INFO(c.words << " words of a lane, " << c.lanes_of_row << " lanes of a row, rows " << c.pitch
                 << " words apart");
    DeviceArray<float> y(32);
    const auto kernel = c.words == 4   ? rows_kernel<4>
                        : c.words == 2 ? rows_kernel<2>
                                       : rows_kernel<1>;
    const KernelCounts counts = count_accesses([&] {
      run(kernel, 1, 32, 32 * 32 * sizeof(float), y.get(), c.lanes_of_row, c.pitch);
      CUDA_CHECK(cudaDeviceSynchronize());
    });
    const AccessCount load = counts.total(true, false);
    CHECK(load.requests == 1);
    CHECK(load.passes == c.passes);
    CHECK(load.least_passes == c.least);
  }
}

TEST_CASE("emulator check: a count ends with its body, also where that throws", "[quick][cuda]") {
  if (!count_accesses) return;
  DeviceArray<float> x(64);
  DeviceArray<float> y(64);
  REQUIRE_THROWS_AS(count_accesses([] { throw CudaError("stopped"); }), CudaError);
  run(strides_kernel, 1, 32, 32 * sizeof(float), x.get(), y.get(), 1, 1);
  REQUIRE(count_accesses([] {}).accesses.empty());
}
