// The emulated CUDA runtime: devices, memory, copies, streams, events, capture. One file, because
// its cases share kernels and helpers.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <future>
#include <thread>

#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/device/captured_step.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/cuda_kernels/emulator/config.h"
#include "ringgrad/cuda_kernels/emulator/guarded_memory.h"
#include "ringgrad/cuda_kernels/emulator/include/cuda_runtime_api.h"
#include "ringgrad/cuda_kernels/runtime/graph.h"
#include "ringgrad/cuda_kernels/runtime/host_copy.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/emulator_runtime_kernels.cu"
#include "ringgrad/tests/cuda/emulator_util.h"

namespace ringgrad::test::emulator_runtime_test {

namespace {

size_t free_bytes(int device) {
  CUDA_CHECK(cudaSetDevice(device));
  size_t free;
  size_t total;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  CUDA_CHECK(cudaSetDevice(0));
  return free;
}

constexpr int kN = 1000;

}  // namespace

TEST_CASE("emulator: each device has its own memory account, with a limit", "[quick][cuda]") {
  REQUIRE(device_count(DeviceType::CUDA) == emulator::config().devices);
  const size_t before0 = free_bytes(0);
  const size_t before1 = free_bytes(1);
  {
    DeviceArray<char> block(5000);
    REQUIRE(free_bytes(0) == before0 - 5000);
    REQUIRE(free_bytes(1) == before1);
    REQUIRE_THROWS_AS(DeviceArray<char>(before0), OutOfMemoryError);
  }
  REQUIRE(free_bytes(0) == before0);
  REQUIRE_THROWS_AS(Device("cuda:99"), DeviceError);
  REQUIRE_THROWS_AS(current_stream(Device("cuda:63")), DeviceError);
}

TEST_CASE("emulator: fresh device memory is NaN", "[quick][cuda]") {
  for (const float value : DeviceArray<float>(100).values()) REQUIRE(std::isnan(value));
}

TEST_CASE("emulator: copies check direction and range", "[quick][cuda]") {
  DeviceArray<char> device(64);
  std::vector<char> host(128);
  REQUIRE(cudaMemcpy(device.get(), host.data(), 64, cudaMemcpyDeviceToHost) ==
          cudaErrorInvalidMemcpyDirection);
  REQUIRE(cudaMemcpy(device.get(), host.data(), 64, cudaMemcpyDeviceToDevice) ==
          cudaErrorInvalidMemcpyDirection);
  REQUIRE(cudaMemcpy(device.get(), host.data(), 65, cudaMemcpyHostToDevice) ==
          cudaErrorInvalidValue);
  const std::string why = failure(
      [&] { CUDA_CHECK(cudaMemcpy(device.get() + 60, host.data(), 5, cudaMemcpyDefault)); });
  REQUIRE(contains(why, "cudaMemcpyAsync of 5 bytes at offset 60 of an allocation of 64"));
  REQUIRE(cudaFree(device.get() + 1) == cudaErrorInvalidValue);
  REQUIRE(cudaMemcpy(device.get(), host.data(), 64, cudaMemcpyDefault) == cudaSuccess);
  cudaGetLastError();
}

TEST_CASE("cuda: devices that a process uses reach each other's memory", "[quick][cuda]") {
  const Device devices[] = {Device("cuda:0"), Device("cuda:1")};
  for (const Device& device : devices) (void)zeros({1}, {DType::Float32, device});
  for (const Device& device : devices) {
    const cuda::DeviceGuard guard(device);
    CHECK(cudaDeviceEnablePeerAccess(1 - device.index, 0) == cudaErrorPeerAccessAlreadyEnabled);
    CHECK(cudaGetLastError() == cudaErrorPeerAccessAlreadyEnabled);
  }
}

TEST_CASE("emulator: a launch on another device's stream is an error", "[quick][cuda]") {
  cudaLaunchConfig_t config{};
  config.gridDim = config.blockDim = 1;
  config.stream = cuda::native(current_stream(Device("cuda:1")));
  CUDA_CHECK(cudaSetDevice(0));
  int* none = nullptr;
  REQUIRE(cudaLaunchKernelEx(&config, set_kernel, none, 0, 0) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

// In 32 bits there would be none: a launch without blocks, which does nothing.
TEST_CASE("cuda: more blocks than a launch can have are refused", "[quick][cuda]") {
  constexpr int64_t kMost = 0x7fffffff;
  REQUIRE(cuda::blocks_for(kMost * 256, 256) == kMost);
  for (const int64_t blocks : {kMost + 1, int64_t{1} << 32})
    REQUIRE_THROWS_AS(cuda::blocks_for(blocks * 256, 256), ShapeError);
}

// The producer fills x with 7 on one stream, the consumer doubles it on another: right only if the
// second waits.
TEST_CASE("emulator: a missing wait between streams shows under an adversarial order",
          "[quick][cuda]") {
  const auto last_value = [](bool wait) {
    const cuda::OwnedStream producer(Device("cuda:0"));
    const cuda::OwnedStream consumer(Device("cuda:0"));
    DeviceArray<int> x(std::vector<int>(kN, 0));
    cuda::launch(set_kernel, 1, 32, 0, producer.get(), x.get(), kN, 7);
    if (wait) cuda::wait_for(consumer.get(), producer.get());
    cuda::launch(double_kernel, 1, 32, 0, consumer.get(), x.get(), kN);
    synchronize(consumer.get());
    synchronize(producer.get());
    return x.values()[kN - 1];
  };
  const auto order = GENERATE(StreamOrder::Eager, StreamOrder::Lazy, StreamOrder::Random);
  int wrong = 0;
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    const StreamOrderGuard guard(order, seed);
    REQUIRE(last_value(true) == 14);
    wrong += last_value(false) != 14;
  }
  if (order == StreamOrder::Eager) REQUIRE(wrong == 0);
  if (order == StreamOrder::Lazy) REQUIRE(wrong == 8);
  if (order == StreamOrder::Random) REQUIRE(wrong > 0);
}

TEST_CASE("emulator: events mark a point, and host functions run in order", "[quick][cuda]") {
  const StreamOrderGuard guard(StreamOrder::Lazy);
  const cuda::OwnedStream stream(Device("cuda:0"));
  DeviceArray<int> x(std::vector<int>(kN, 0));
  cuda::Event before(Device("cuda:0"), true);
  cuda::Event after(Device("cuda:0"), true);
  std::vector<int> calls;
  const auto note = [](void* data) {
    auto* list = static_cast<std::vector<int>*>(data);
    list->push_back(static_cast<int>(list->size()));
  };
  before.record(stream.get());
  CUDA_CHECK(cudaLaunchHostFunc(cuda::native(stream.get()), note, &calls));
  cuda::launch(set_kernel, 1, 32, 0, stream.get(), x.get(), kN, 3);
  after.record(stream.get());
  CUDA_CHECK(cudaLaunchHostFunc(cuda::native(stream.get()), note, &calls));
  REQUIRE(calls.empty());  // nothing has run, because nothing waits yet
  after.synchronize();
  REQUIRE(calls.size() == 1);
  REQUIRE(after.done());
  REQUIRE(after.milliseconds_since(before) >= 0);
  synchronize(stream.get());
  REQUIRE(calls.size() == 2);
}

TEST_CASE("emulator: events belong to a device, and those without timing have no times",
          "[quick][cuda]") {
  const Device first("cuda:0");
  const Device second("cuda:1");
  cuda::Event plain(first);
  cuda::Event timed(first, true);
  cuda::Event elsewhere(second, true);
  REQUIRE(contains(failure([&] { elsewhere.record(current_stream(first)); }),
                   "an event of device 1 on a stream of device 0"));
  plain.record(current_stream(first));
  timed.record(current_stream(first));
  elsewhere.record(current_stream(second));
  elsewhere.block(current_stream(first));  // a stream may wait for another device's
  for (const cuda::Event* event : {&plain, &timed, &elsewhere}) event->synchronize();
  REQUIRE(contains(failure([&] { timed.milliseconds_since(plain); }), "an event without timing"));
  REQUIRE(contains(failure([&] { timed.milliseconds_since(elsewhere); }),
                   "between events of two devices"));
}

TEST_CASE("emulator: an event that has not passed leaves no error behind", "[quick][cuda]") {
  const StreamOrderGuard guard(StreamOrder::Lazy);
  const Device device("cuda:0");
  DeviceArray<int> x(1);
  cuda::Event event(device);
  cuda::launch(set_kernel, 1, 1, 0, current_stream(device), x.get(), 1, 1);
  event.record(current_stream(device));
  REQUIRE_FALSE(event.done());
  REQUIRE(cudaGetLastError() == cudaSuccess);
  while (!event.done()) {
  }
}

TEST_CASE("emulator: more than 48 KiB of shared memory have to be asked for, on each device",
          "[quick][cuda]") {
  constexpr size_t kBytes = 100 * 1024;
  cudaLaunchConfig_t config{};
  config.gridDim = config.blockDim = 1;
  config.dynamicSmemBytes = kBytes;
  const auto launch_on = [&](int device) {
    const Device of(DeviceType::CUDA, device);
    const cuda::DeviceGuard guard(of);
    config.stream = cuda::native(current_stream(of));
    int* none = nullptr;
    const cudaError_t error = cudaLaunchKernelEx(&config, ask_kernel, none, 0);
    cudaGetLastError();
    return error;
  };
  CUDA_CHECK(cudaSetDevice(0));
  REQUIRE(launch_on(0) == cudaErrorInvalidValue);
  const auto ask_for = [](size_t bytes) {
    return cudaFuncSetAttribute(ask_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(bytes));
  };
  REQUIRE(ask_for(1 << 20) == cudaErrorInvalidValue);
  REQUIRE(ask_for(kBytes - 1) == cudaSuccess);
  REQUIRE(launch_on(0) == cudaErrorInvalidValue);
  REQUIRE(ask_for(kBytes) == cudaSuccess);
  REQUIRE(launch_on(0) == cudaSuccess);
  REQUIRE(launch_on(1) == cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_CASE("emulator: the host cannot reach a device's memory", "[quick][cuda]") {
  if (!emulator::memory_is_guarded()) return;  // this CPU cannot, or AddressSanitizer watches it
  const DeviceArray<int> x(std::vector<int>{5});
  REQUIRE(x.values()[0] == 5);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    std::_Exit(*const_cast<volatile int*>(x.get()));
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGSEGV);
}

TEST_CASE("emulator: the host's memory is read when a copy runs", "[quick][cuda]") {
  const StreamOrderGuard guard(StreamOrder::Lazy);
  const cuda::OwnedStream stream(Device("cuda:0"));
  int value = 1;
  DeviceArray<int> x(1);
  CUDA_CHECK(cudaMemcpyAsync(x.get(), &value, sizeof(int), cudaMemcpyHostToDevice,
                             cuda::native(stream.get())));
  value = 2;  // the mistake that a device would show now and then
  synchronize(stream.get());
  REQUIRE(x.values() == std::vector<int>{2});
}

// The host goes on while the device has not come to a copy, and may change what it has copied.
TEST_CASE("cuda: copies from the host are queued, in pieces of page-locked memory",
          "[quick][cuda]") {
  const auto order = GENERATE(StreamOrder::Eager, StreamOrder::Lazy, StreamOrder::Random);
  const StreamOrderGuard guard(order);
  const Device device("cuda:0");
  const int64_t n = GENERATE(1, 1 << 19, 3'500'001);  // a part of a piece, one, several
  const Tensor host = arange(n);
  const Tensor x = empty({n}, {DType::Int64, device});
  copy_(x, host);
  if (order == StreamOrder::Lazy) CHECK_FALSE(cuda::has_ended(current_stream(device)));
  const std::vector<int64_t> expected = to_vector<int64_t>(host);
  fill_(host, -1);
  CHECK((to_vector<int64_t>(x) == expected));
}

TEST_CASE("emulator: a copy of pageable memory holds other threads' calls, if so configured",
          "[quick][cuda]") {
  const StreamOrderGuard guard(StreamOrder::Lazy);
  emulator::config().pageable_copies_hold = true;
  const Device device("cuda:0");
  const cuda::OwnedStream stuck(device);
  const cuda::OwnedStream other(device);
  const Tensor x = zeros({2}, {.device = device});
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  const auto wait = [](void* until) { static_cast<std::shared_future<void>*>(until)->wait(); };
  CUDA_CHECK(cudaLaunchHostFunc(cuda::native(stuck.get()), wait, &released));
  const auto asks = [&] {
    return std::async(std::launch::async, [&] {
      const cuda::DeviceGuard on(device);
      return cuda::has_ended(other.get());
    });
  };
  const auto answered = [](auto& answer) {
    return answer.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
  };
  const bool pageable = GENERATE(true, false);
  auto copying = std::async(std::launch::async, [&] {
    const cuda::DeviceGuard on(device);
    int host = 0;
    if (pageable)
      CUDA_CHECK(cudaMemcpyAsync(&host, x.raw_data(), sizeof host, cudaMemcpyDefault,
                                 cuda::native(stuck.get())));
    else
      cuda::copy_to_host(stuck.get(), &host, x.raw_data(), sizeof host);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  auto answer = asks();
  CHECK(answered(answer) == !pageable);
  release.set_value();
  copying.get();
  CHECK(answer.get());
}

TEST_CASE("emulator: the error of a kernel surfaces at the next wait for its device, and stays",
          "[quick][cuda]") {
  const StreamOrderGuard guard(StreamOrder::Lazy);
  const cuda::OwnedStream stream(Device("cuda:0"));
  DeviceArray<int> x(1);
  void* memory = nullptr;
  cudaEvent_t event = nullptr;
  cuda::launch(trap_kernel, 1, 1, 0, stream.get());
  CHECK(cudaMalloc(&memory, 4) == cudaSuccess);  // nothing has run
  CHECK(cudaFree(memory) == cudaErrorLaunchFailure);
  CHECK(contains(cudaGetErrorString(cudaErrorLaunchFailure), "__trap"));
  for (int i = 0; i < 2; ++i) CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  CHECK(cudaStreamSynchronize(cuda::native(stream.get())) == cudaErrorLaunchFailure);
  CHECK(cudaMalloc(&memory, 4) == cudaErrorLaunchFailure);
  CHECK(cudaEventCreateWithFlags(&event, 0) == cudaErrorLaunchFailure);
  CHECK(contains(failure([&] { cuda::launch(set_kernel, 1, 1, 0, stream.get(), x.get(), 1, 1); }),
                 "__trap"));
  cuda::launch(set_kernel, 1, 1, 0, stream.get(), x.get(), 1, 1);  // as in another process
  CHECK(x.values() == std::vector<int>{1});
  cuda::launch(trap_kernel, 1, 1, 0, stream.get());
  CHECK(cudaStreamSynchronize(cuda::native(stream.get())) == cudaErrorLaunchFailure);
  CHECK(cudaSetDevice(1) == cudaSuccess);  // another device is as it was
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  emulator::revive_devices();
  CUDA_CHECK(cudaSetDevice(0));
}

TEST_CASE("emulator: a captured graph does its work again at each launch", "[quick][cuda]") {
  const StreamOrderGuard guard(
      GENERATE(StreamOrder::Eager, StreamOrder::Lazy, StreamOrder::Random));
  const Device device("cuda:0");
  DeviceArray<int> x(std::vector<int>(kN, 1));
  DeviceArray<int> y(std::vector<int>(kN, 0));
  const cuda::OwnedStream side(device);
  const cuda::Graph graph = cuda::capture(device, [&] {
    const Stream main = current_stream(device);
    cuda::launch(double_kernel, 1, 32, 0, main, x.get(), kN);
    cuda::wait_for(side.get(), main);  // fork
    cuda::launch(set_kernel, 1, 32, 0, side.get(), y.get(), kN, 5);
    cuda::launch(double_kernel, 1, 32, 0, main, x.get(), kN);
    cuda::wait_for(main, side.get());  // join
    cuda::launch(double_kernel, 1, 32, 0, main, y.get(), kN);
  });
  REQUIRE(graph.nodes() == 4);
  REQUIRE(x.values()[0] == 1);  // recorded, not run
  for (int i = 0; i < 3; ++i) graph.launch(current_stream(device));
  synchronize(current_stream(device));
  REQUIRE(x.values() == std::vector<int>(kN, 64));
  REQUIRE(y.values() == std::vector<int>(kN, 10));
}

TEST_CASE("emulator: what a capture forbids is error 900, and the device is usable afterwards",
          "[quick][cuda]") {
  const Device device("cuda:0");
  DeviceArray<int> x(1);
  int host = 0;
  const cuda::OwnedStream side(device);
  const auto capture_failure = [&](auto body) {
    return failure([&] { cuda::capture(device, [&] { body(current_stream(device)); }); });
  };
  const std::string not_permitted = "cudaErrorStreamCaptureUnsupported";
  void* memory;
  REQUIRE(contains(capture_failure([](Stream stream) { synchronize(stream); }), not_permitted));
  REQUIRE(contains(capture_failure([](Stream) { CUDA_CHECK(cudaDeviceSynchronize()); }),
                   not_permitted));
  REQUIRE(contains(capture_failure([&](Stream) { CUDA_CHECK(cudaMalloc(&memory, 8)); }),
                   not_permitted));
  REQUIRE(contains(capture_failure([&](Stream) {
                     CUDA_CHECK(cudaMemcpy(&host, x.get(), sizeof host, cudaMemcpyDeviceToHost));
                   }),
                   not_permitted));
  REQUIRE(static_cast<int>(cudaErrorStreamCaptureUnsupported) == 900);
  // Nor can this thread wait for anything else meanwhile, or ask.
  cuda::Event outside(device);
  outside.record(side.get());
  REQUIRE(contains(capture_failure([&](Stream) { synchronize(side.get()); }), not_permitted));
  REQUIRE(contains(capture_failure([&](Stream) { outside.synchronize(); }), not_permitted));
  REQUIRE(contains(capture_failure([&](Stream) { outside.done(); }), not_permitted));
  const auto on_another_thread = [&](auto body) { std::thread(body).join(); };
  REQUIRE(capture_failure([&](Stream) {
            on_another_thread(
                [&] { outside.done(), outside.synchronize(), synchronize(side.get()); });
          }) == "");
  // A capture forbids a wait for its whole device, but not for another device.
  REQUIRE(
      contains(capture_failure([&](Stream) { on_another_thread([] { cudaDeviceSynchronize(); }); }),
               "cudaErrorStreamCaptureInvalidated"));
  REQUIRE(capture_failure([&](Stream) {
            on_another_thread([] { cudaSetDevice(1), cudaDeviceSynchronize(); });
          }) == "");
  // Swallowing the error does not help: the capture is spoilt.
  REQUIRE(contains(capture_failure([](Stream) { cudaDeviceSynchronize(); }),
                   "cudaErrorStreamCaptureInvalidated"));
  const auto forgotten_join = [&](Stream main) {
    cuda::wait_for(side.get(), main);
    cuda::launch(set_kernel, 1, 1, 0, side.get(), x.get(), 1, 1);
  };
  REQUIRE(contains(capture_failure(forgotten_join), "cudaErrorStreamCaptureUnjoined"));
  const auto outside_event = [&](Stream main) {
    cuda::Event event(device);
    event.record(side.get());
    event.block(main);
  };
  REQUIRE(contains(capture_failure(outside_event), "cudaErrorStreamCaptureIsolation"));
  REQUIRE_FALSE(cuda::capturing());
  cuda::launch(set_kernel, 1, 1, 0, side.get(), x.get(), 1, 9);
  REQUIRE(x.values()[0] == 9);
}

TEST_CASE("emulator: cudaMemcpy returns before the bytes have come", "[quick][cuda]") {
  const StreamOrderGuard guard(StreamOrder::Lazy);
  const Device device("cuda:0");
  DeviceArray<int> x(1);
  std::vector<int> host(1, 3);
  CUDA_CHECK(cudaMemcpy(x.get(), host.data(), sizeof(int), cudaMemcpyHostToDevice));
  host[0] = 5;  // which it has read
  cuda::launch(double_kernel, 1, 1, 0, current_stream(device), x.get(), 1);
  synchronize(current_stream(device));
  CHECK(x.values()[0] == 3);  // copied over what the kernel has made of NaN
}

TEST_CASE("emulator: a new stream's counters are zeros before anything runs on it",
          "[quick][cuda]") {
  const StreamOrderGuard guard(StreamOrder::Lazy);
  std::vector<cuda::OwnedStream> streams;  // more than the pool has, so it must make some
  for (int i = 0; i < 40; ++i) streams.emplace_back(Device("cuda:0"));
  std::vector<unsigned> counters(cuda::kCounters, 1);
  for (const cuda::OwnedStream& stream : streams) {
    CUDA_CHECK(cudaMemcpyAsync(counters.data(), cuda::block_counters(stream.get()),
                               counters.size() * sizeof(unsigned), cudaMemcpyDeviceToHost,
                               cuda::native(stream.get())));
    synchronize(stream.get());
    REQUIRE(counters == std::vector<unsigned>(cuda::kCounters, 0));
  }
}

TEST_CASE("emulator: a small device gives memory back while a captured step lives",
          "[quick][cuda]") {
  constexpr int64_t kMiB = 1 << 20;
  const Device device("cuda:3");
  empty_cache(device);
  const size_t memory = emulator::config().memory_bytes;
  emulator::config().memory_bytes = static_cast<size_t>(64 * kMiB);
  {
    const Tensor x = zeros({1024}, {.device = device});
    CapturedStep step(device, [&] { kernels::affine(x, x, 1, 1); });
    for (int i = 0; i < 3; ++i) step();
    for (const int64_t size : {24, 28, 34})
      CHECK_NOTHROW(empty({size * kMiB}, {DType::UInt8, device}));
    CapturedStep large(device, [&] { empty({40 * kMiB}, {DType::UInt8, device}); });
    for (int i = 0; i < 3; ++i) large();
    std::string full;
    try {
      empty({40 * kMiB}, {DType::UInt8, device});
    } catch (const OutOfMemoryError& error) {
      full = error.what();
    }
    CHECK(contains(full, "41943040 are kept for recorded steps"));
  }
  CHECK_NOTHROW(empty({40 * kMiB}, {DType::UInt8, device}));
  empty_cache(device);
  emulator::config().memory_bytes = memory;
}

// An error of a kernel ends a device's context. Destructors of objects on the device must not
// throw, so that the program can still report the error.
TEST_CASE("emulator: what lies on a lost device can be let go", "[quick][cuda]") {
  const Device device("cuda:2");
  std::optional<Tensor> x(zeros({64}, {.device = device}));
  std::optional<CapturedStep> step(std::in_place, device, [&] { kernels::affine(*x, *x, 1, 1); });
  for (int i = 0; i < 3; ++i) (*step)();
  std::unique_ptr<DeviceTimer> timer =
      device_backend(DeviceType::CUDA).start_timer(current_stream(device));
  std::optional<cuda::Event> event(std::in_place, device);
  std::optional<cuda::OwnedStream> stream(std::in_place, device);
  const auto lose = [] { emulator::config().device_lost = true; };
  const std::string recording = failure([&] {
    device_backend(DeviceType::CUDA).capture(device.index, [&] {
      lose();
      kernels::fill(*x, 1);
    });
  });
  CHECK(contains(recording, "the device is lost"));
  CHECK(contains(failure([&] { (*step)(); }), "the device is lost"));
  step.reset();
  timer.reset();
  event.reset();
  stream.reset();
  x.reset();
  CHECK(contains(failure([&] { zeros({64}, {.device = device}); }), "the device is lost"));
  emulator::config().device_lost = false;
}

TEST_CASE("emulator: a graph keeps the memory that its body allocated", "[quick][cuda]") {
  const Device device("cuda:1");
  CUDA_CHECK(cudaSetDevice(1));
  DeviceArray<int> result(kN);
  {
    const cuda::Graph graph = cuda::capture(device, [&] {
      const Tensor temporary = empty({kN}, {.dtype = DType::Int32, .device = device});
      cuda::launch(set_kernel, 1, 32, 0, current_stream(device), temporary.data<int>(), kN, 21);
      cuda::launch(double_kernel, 1, 32, 0, current_stream(device), temporary.data<int>(), kN);
      CUDA_CHECK(cudaMemcpyAsync(result.get(), temporary.raw_data(), kN * sizeof(int),
                                 cudaMemcpyDeviceToDevice, cuda::native(current_stream(device))));
    });
    empty_cache(device);  // the temporary's block is cached, but the graph still writes to it
    for (int i = 0; i < 2; ++i) graph.launch(current_stream(device));
    synchronize(current_stream(device));
    REQUIRE(result.values() == std::vector<int>(kN, 42));
  }
  CUDA_CHECK(cudaSetDevice(0));
}

}  // namespace ringgrad::test::emulator_runtime_test
