#include "ringgrad/core/device/allocator.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace ringgrad::test::allocator_test {

namespace {

constexpr int64_t kMiB = 1 << 20;

int64_t address_space_in_use() {  // bytes of address space in use now
  long pages = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

// Runs f in a child process with `room` more bytes of address space, and returns its result.
template <class F>
std::string in_child_with_room(int64_t room, F f) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    close(ends[0]);
    const rlim_t limit = static_cast<rlim_t>(address_space_in_use() + room);
    const rlimit wanted = {limit, limit};
    std::string text = setrlimit(RLIMIT_AS, &wanted) == 0 ? f() : "setrlimit failed";
    const ssize_t written = write(ends[1], text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, n);
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  return text;
}

}  // namespace

TEST_CASE("the account of a device is exact", "[allocator][quick]") {
  const Device device;
  empty_cache(device);
  const MemoryStats before = memory_stats(device);
  {
    const Tensor x = empty({1024});  // 4 KiB: a size class of its own
    MemoryStats now = memory_stats(device);
    CHECK(now.live_bytes - before.live_bytes == 4096);
    CHECK(now.reserved_bytes - before.reserved_bytes == 4096);
    CHECK(now.allocations - before.allocations == 1);
    CHECK(now.cache_misses - before.cache_misses == 1);
    const Tensor view = x.as_strided({2}, {1}, 0);  // allocates nothing
    const Tensor y = empty({3});                    // 12 bytes take a block of 64
    now = memory_stats(device);
    CHECK(now.live_bytes - before.live_bytes == 4096 + 64);
    CHECK(now.allocations - before.allocations == 2);
  }
  MemoryStats now = memory_stats(device);
  CHECK(now.live_bytes == before.live_bytes);
  CHECK(now.reserved_bytes - before.reserved_bytes == 4096 + 64);  // cached
  empty_cache(device);
  now = memory_stats(device);
  CHECK(now.reserved_bytes == before.reserved_bytes);
}

TEST_CASE("a block wastes at most a quarter", "[allocator][quick]") {
  for (int64_t bytes = 1; bytes < 100 * kMiB; bytes = bytes * 17 / 16 + 1) {
    const int64_t before = memory_stats({}).live_bytes;
    const Tensor x = empty({bytes}, {.dtype = DType::UInt8});
    const int64_t block = memory_stats({}).live_bytes - before;
    REQUIRE(block >= bytes);
    REQUIRE(block <= std::max<int64_t>(64, (bytes + 63) / 64 * 64 * 5 / 4));
  }
  empty_cache({});
}

TEST_CASE("freed blocks are used again by the next tensor of about that size",
          "[allocator][quick]") {
  empty_cache({});
  const void* first = empty({1000}).raw_data();
  const Tensor again = empty({990});
  CHECK(again.raw_data() == first);
  CHECK(empty({990}).raw_data() != first);
}

TEST_CASE("a steady-state step takes nothing from the system", "[allocator][quick]") {
  const Tensor w = Tensor(ones({64, 64})).set_requires_grad();
  const auto step = [&] {
    Tensor y = w;
    for (int layer = 0; layer < 5; ++layer) y = relu(y * w + 0.5);
    sum(y * 1e-3).backward();
    w.set_grad({});
  };
  step();
  const MemoryStats before = memory_stats({});
  for (int i = 0; i < 5; ++i) step();
  const MemoryStats after = memory_stats({});
  CHECK(after.cache_misses == before.cache_misses);
  CHECK(after.allocations > before.allocations + 100);
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(after.peak_bytes == before.peak_bytes);
}

TEST_CASE("the peak can be reset", "[allocator][quick]") {
  { const Tensor x = empty({kMiB}); }
  const MemoryStats high = memory_stats({});
  CHECK(high.peak_bytes >= high.live_bytes + 4 * kMiB);
  reset_peak_memory({});
  CHECK(memory_stats({}).peak_bytes == memory_stats({}).live_bytes);
  const Tensor x = empty({1024});
  CHECK(memory_stats({}).peak_bytes == memory_stats({}).live_bytes);
  empty_cache({});
}

TEST_CASE("blocks are aligned to cache lines", "[allocator][quick]") {
  for (int64_t n : {1, 3, 100, 5000, 3'000'000})
    CHECK(reinterpret_cast<uintptr_t>(empty({n}).raw_data()) % 64 == 0);
  empty_cache({});
}

TEST_CASE("threads allocate at the same time, and the account stays exact",
          "[allocator][quick][threads]") {
  const int64_t before = memory_stats({}).live_bytes;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;  // Catch2's own checks are not for several threads
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t, &wrong] {
      for (int i = 0; i < 500; ++i) {
        const Tensor x = full({100 + 50 * t + i % 7}, t);
        const Tensor y = x.detach();
        wrong += y.data<float>()[99] != static_cast<float>(t);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(memory_stats({}).live_bytes == before);
}

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // they reserve terabytes of address space
TEST_CASE("out of memory names the operation, the bytes and what is live", "[allocator][quick]") {
  const std::string text = in_child_with_room(64 * kMiB, [] {
    const Tensor x = empty({2 * kMiB});  // 8 MiB
    const OpScope scope("conv2d");
    const int64_t live = memory_stats({}).live_bytes;
    return thrown<OutOfMemoryError>([] { empty({256 * kMiB}); }) + "|" + std::to_string(live);
  });
  const std::string live = text.substr(text.find('|') + 1);
  CHECK(std::stoll(live) >= 8 * kMiB);
  require_contains(text, "conv2d: out of memory on cpu:0: asked for 1073741824 bytes; " + live +
                             " bytes are in live tensors (peak ");
}

TEST_CASE("cached blocks are given back before memory is out", "[allocator][quick]") {
  // These sizes are far above what the C library may keep of freed memory (64 MiB).
  const std::string text = in_child_with_room(512 * kMiB, []() -> std::string {
    { const Tensor x = empty({100 * kMiB}); }  // 400 MiB, now cached
    const Tensor y = empty({120 * kMiB});      // 480 MiB: fits without the other only
    return memory_stats({}).reserved_bytes < 600 * kMiB ? "fits" : "still cached";
  });
  CHECK(text == "fits");
}
#endif

#if defined(__SANITIZE_ADDRESS__)
TEST_CASE("AddressSanitizer sees a block's end, and its use after it is free",
          "[allocator][quick]") {
  const float* data;
  {
    const Tensor x = empty({33});
    data = x.data<float>();
    CHECK(!__asan_address_is_poisoned(data + 32));
    CHECK(__asan_address_is_poisoned(data + 33));
  }
  CHECK(__asan_address_is_poisoned(data));  // though the cache keeps it
}
#endif

}  // namespace ringgrad::test::allocator_test
