// Autotune: of a kernel's two providers the faster is found once for each kind of call, remembered
// in a file, and never looked for while a stream is being captured.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/autotune.h"
#include "ringgrad/core/kernels/call_signature.h"
#include "ringgrad/core/kernels/float32_precision.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/cuda_util.h"

using namespace ringgrad;

namespace ringgrad::kernels {
// y = 1 by the native implementation, 2 by the vendor's, which takes few rows only and is slow for
// one.
static constinit Kernel<void(const Tensor& y, const Conv2dOptions& options), kVendorToo> probe{
    "probe"};
}  // namespace ringgrad::kernels

namespace {

int native_runs = 0;
int vendor_runs = 0;
constexpr auto kSlow = std::chrono::milliseconds(8);

void write([[maybe_unused]] const Tensor& y, [[maybe_unused]] float value) {
  if (y.device().is_cpu()) *y.data<float>() = value;
}
void probe_native(Stream, const Tensor& y, const Conv2dOptions&) {
  ++native_runs;
  if (y.size(0) == 2) std::this_thread::sleep_for(kSlow);
  write(y, 1);
}
bool probe_vendor(Stream, const Tensor& y, const Conv2dOptions&) {
  ++vendor_runs;
  if (y.size(0) > 6) throw CudaError("probe: CUDNN_STATUS_EXECUTION_FAILED");
  if (y.size(0) > 3) return false;
  if (y.size(0) == 1) std::this_thread::sleep_for(kSlow);
  write(y, 2);
  return true;
}
REGISTER_KERNEL(probe, CPU, Native, probe_native);
REGISTER_KERNEL(probe, CPU, Vendor, probe_vendor);

// Returns a call as it stands in the file.
std::string near(const std::string& call) {
  return str(call, " threads ", thread_count(current_stream({})));
}

// A cache directory of its own. The table is read once per process, so there is one for all tests,
// with a line from an earlier process and one that a crash has cut off.
std::filesystem::path cache() {
  static const std::filesystem::path directory = [] {
    std::string name =
        (std::filesystem::temp_directory_path() / "ringgrad-autotune-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    setenv("RINGGRAD_CACHE_DIR", name.c_str(), 1);
    std::ofstream(autotune_file({}))
        << "# ringgrad autotune 5: call, native us, vendor us; or us of the vendor's plans\n"
           "known\t3\t4\n"
        << near("two per cent") << "\t102\t100\n"
        << near("four per cent") << "\t104\t100\n"
        << near("native by little") << "\t100\t101\n"
        << "plans of " << near("plans") << "\t-\t102\t150\t100\t100\n"
        << "plans of " << near("other plans") << "\t200\t-\t104\t100\n"
        << "cut off\t1";
    std::atexit([] { std::filesystem::remove_all(std::getenv("RINGGRAD_CACHE_DIR")); });
    return std::filesystem::path(name);
  }();
  return directory;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

float probe(int64_t rows, Provider provider, const Conv2dOptions& options = {}) {
  const ProviderGuard guard(provider);
  const Tensor y = zeros({rows});
  kernels::probe(y, options);
  return *y.data<float>();
}

}  // namespace

// Differences as small as the noise of a measurement must not decide which bits a result has.
TEST_CASE("a vendor that is hardly faster is not chosen, nor is a later plan",
          "[quick][autotune]") {
  cache();
  const auto never = [](Stream) -> bool { throw Error("it was timed before"); };
  const auto is_faster = [&](const std::string& call) {
    return vendor_is_faster(current_stream({}), call, never, never);
  };
  CHECK_FALSE(is_faster("two per cent"));
  CHECK_FALSE(is_faster("native by little"));
  CHECK(is_faster("four per cent"));
  const auto plan = [&](const std::string& call, size_t plans) {
    return fastest_plan(current_stream({}), call,
                        std::vector<std::function<bool(Stream)>>(plans, never));
  };
  CHECK(plan("plans", 5) == 1);
  CHECK(plan("other plans", 4) == 3);
}

TEST_CASE("each provider runs where it is asked for, the native one where the vendor has no kernel",
          "[quick][autotune]") {
  cache();
  CHECK(probe(1, Provider::Native) == 1);
  CHECK(probe(1, Provider::Vendor) == 2);
  CHECK(probe(4, Provider::Vendor) == 1);
}

TEST_CASE("the setting of the process holds on every thread, a guard's on its own",
          "[quick][threads][autotune]") {
  CHECK(preferred_provider(DeviceType::CPU) == Provider::Native);
  CHECK(preferred_provider(DeviceType::CUDA) == Provider::Fastest);
  set_provider(Provider::Vendor);
  const ProviderGuard guard(Provider::Native);
  Provider elsewhere = Provider::Native;
  std::thread([&] { elsewhere = preferred_provider(DeviceType::CPU); }).join();
  CHECK(elsewhere == Provider::Vendor);
  CHECK(preferred_provider(DeviceType::CPU) == Provider::Native);
  set_provider(std::nullopt);
}

TEST_CASE("the faster provider is chosen and remembered", "[quick][autotune]") {
  cache();
  probe(1, Provider::Fastest);
  probe(2, Provider::Fastest);
  native_runs = vendor_runs = 0;
  for (int i = 0; i < 3; ++i) {
    CHECK(probe(1, Provider::Fastest) == 1);
    CHECK(probe(2, Provider::Fastest) == 2);
  }
  CHECK(native_runs == 3);
  CHECK(vendor_runs == 3);

  REQUIRE(autotune_file({}).starts_with(cache().string()));
  const std::string text = text_of(autotune_file({}));
  CHECK(text.find("probe float32[1] 1x1 0x0 1x1 1 threads ") != std::string::npos);
  CHECK(text.find("known\t3\t4\n") != std::string::npos);
  CHECK(text.find("cut off") == std::string::npos);
  CHECK(tuned_calls({}).size() == 6);
}

// The file does not keep it: the next process may have another library.
TEST_CASE("a call that the vendor has no kernel for, or fails at, is tried once",
          "[quick][autotune]") {
  cache();
  const int rows = GENERATE(5, 7);
  CHECK(probe(rows, Provider::Fastest) == 1);
  vendor_runs = 0;
  CHECK(probe(rows, Provider::Fastest) == 1);
  CHECK(vendor_runs == 0);
  CHECK(text_of(autotune_file({})).find(str("probe float32[", rows)) == std::string::npos);
  CHECK_THROWS_AS(probe(7, Provider::Vendor), CudaError);
}

TEST_CASE("the fastest of a vendor's plans is chosen and remembered, those that do not run aside",
          "[quick][autotune]") {
  cache();
  int runs = 0;
  const auto none = [&](Stream) { return ++runs, false; };
  const auto fails = [&](Stream) -> bool {
    throw CudaError("plan: CUDNN_STATUS_EXECUTION_FAILED");
  };
  const auto takes = [&](std::chrono::milliseconds time) {
    return [&runs, time](Stream) { return ++runs, std::this_thread::sleep_for(time), true; };
  };
  const Stream stream = current_stream({});
  const auto asked = [&](const std::string& call,
                         const std::vector<std::function<bool(Stream)>>& plans) {
    const size_t calls = tuned_calls({}).size();
    const auto best = fastest_plan(stream, call, plans);
    runs = 0;
    CHECK(fastest_plan(stream, call, plans) == best);
    CHECK(runs == 0);
    CHECK(tuned_calls({}).size() == calls);
    return best;
  };
  CHECK(asked("all run, library 1", {takes(kSlow), takes(kSlow / 4), takes(kSlow)}) == 1);
  CHECK(text_of(autotune_file({})).find("plans of all run, library 1") != std::string::npos);
  CHECK(asked("some run, library 1", {none, fails, takes(kSlow)}) == 2);
  CHECK(text_of(autotune_file({})).find("\t-\t-\t") != std::string::npos);
  CHECK(asked("none runs, library 1", {none, fails}) == std::nullopt);
  CHECK(asked("no plans, library 1", {}) == std::nullopt);
  // Another library of that name.
  CHECK(asked("all run, library 1", {takes(kSlow / 4), takes(kSlow)}) == 0);
  bool nested = false;
  CHECK(vendor_is_faster(stream, "a vendor with plans", takes(kSlow), [&](Stream on) {
    nested = fastest_plan(on, "its plans", {takes(kSlow), takes(kSlow / 4)}) == 1;
    return true;
  }));
  CHECK(nested);
}

TEST_CASE("what another process has measured meanwhile stays in the file", "[quick][autotune]") {
  cache();
  probe(2, Provider::Fastest);
  std::ofstream(autotune_file({}), std::ios::app) << "by another process\t1\t2\n";
  probe(3, Provider::Fastest, {.stride = 2});
  CHECK(text_of(autotune_file({})).find("by another process\t1\t2\n") != std::string::npos);
}

TEST_CASE("a directory that cannot be written costs only the memory", "[quick][autotune]") {
  cache();
  std::filesystem::permissions(
      cache(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  CHECK(probe(2, Provider::Fastest, {.padding = 7}) == 2);
  native_runs = 0;
  CHECK(probe(2, Provider::Fastest, {.padding = 7}) == 2);
  std::filesystem::permissions(cache(), std::filesystem::perms::owner_all);
  CHECK(native_runs == 0);
}

TEST_CASE("a call's signature tells apart what speed depends on", "[quick][autotune]") {
  const Tensor x = zeros({2, 3, 4, 5});
  const Tensor blocked = empty({2, 3, 4, 5}, {.layout = Layout::ChannelBlocked});
  const auto text = [](const auto&... args) { return call_signature("k", args...); };
  CHECK(text(x) == "k float32[2,3,4,5]");
  CHECK(text(zeros({2}, {.dtype = DType::BFloat16}), Tensor()) == "k bfloat16[2] -");
  CHECK(text(blocked) == "k float32[2,3,4,5]blocked");
  CHECK(text(empty({2, 3, 4, 5}, {.layout = Layout::ChannelsLast})) == "k float32[2,3,4,5]nhwc");
  CHECK(text(x.as_strided({2, 2}, {1, 7}, 0)) == "k float32[2,2](1,7)");
  CHECK(text(Conv2dOptions{.stride = 2, .padding = {0, 1}, .groups = 3}) == "k 2x2 0x1 1x1 3");
  CHECK(text(Pool2dOptions{.kernel = 3}, 0.5, true) == "k 3x3 0x0 0x0 yes 0.5 yes");
}

namespace {
// A matrix is slow for the native implementation's host and the vendor's device, two rows for the
// native one's device.
void keep_device_busy(Device device) { fill_(empty({1 << 16}, {.device = device}), 0); }
void probe_cuda(Stream, const Tensor& y, const Conv2dOptions&) {
  ++native_runs;
  if (y.dim() == 2) std::this_thread::sleep_for(kSlow);
  if (y.dim() == 1) keep_device_busy(y.device());
  kernels::fill(y, 1);
}
bool probe_cuda_vendor(Stream, const Tensor& y, const Conv2dOptions&) {
  ++vendor_runs;
  if (y.dim() == 2) keep_device_busy(y.device());
  kernels::fill(y, 2);
  return true;
}
REGISTER_KERNEL(probe, CUDA, Native, probe_cuda);
REGISTER_KERNEL(probe, CUDA, Vendor, probe_cuda_vendor);
}  // namespace

// The host's time to queue a kernel must not count, because in a captured step nothing waits for
// it.
TEST_CASE("cuda: the faster kernel is the one that the device runs faster", "[cuda][autotune]") {
  if (!test::enough_devices(1)) return;
  cache();
  // Native: 2 ms for the host; vendor: a long kernel.
  const Tensor y = zeros({1, 1}, {.device = Device("cuda")});
  kernels::probe(y, {.padding = 3});
  CHECK(to_vector<float>(y) == std::vector<float>{1});
}

TEST_CASE("cuda: what was timed in float32 does not hold for TF32, and 16 bits know no difference",
          "[cuda][autotune]") {
  if (!test::enough_devices(1)) return;
  cache();
  const auto timed = [](DType dtype) {
    native_runs = 0;
    kernels::probe(empty({5}, {.dtype = dtype, .device = Device("cuda")}), {.padding = 9});
    return native_runs > 1;
  };
  CHECK(timed(DType::Float32));
  CHECK_FALSE(timed(DType::Float32));
  CHECK(timed(DType::BFloat16));
  set_float32_matmul_precision("high");
  CHECK(timed(DType::Float32));
  CHECK_FALSE(timed(DType::BFloat16));
  set_float32_matmul_precision("highest");
  CHECK_FALSE(timed(DType::Float32));
}

TEST_CASE("the precision of float32 products has torch's names", "[quick][autotune]") {
  CHECK(get_float32_matmul_precision() == "highest");
  CHECK_FALSE(allows_tf32());
  for (const char* name : {"high", "medium", "highest"}) {
    set_float32_matmul_precision(name);
    CHECK(get_float32_matmul_precision() == name);
    CHECK(allows_tf32() == (name != std::string_view("highest")));
  }
  try {
    set_float32_matmul_precision("tf32");
    FAIL("it has another name");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("'tf32', expected highest, high or medium") !=
          std::string::npos);
  }
  CHECK(get_float32_matmul_precision() == "highest");
}

TEST_CASE("cuda: nothing is measured while a step is captured", "[cuda][autotune]") {
  if (!test::enough_devices(1)) return;
  cache();
  const Tensor y = empty({2}, {.device = Device("cuda")});
  const auto captured = [&] {
    native_runs = vendor_runs = 0;
    device_backend(DeviceType::CUDA).capture(0, [&] { kernels::probe(y, {}); });
    return std::pair(native_runs, vendor_runs);
  };
  CHECK(captured() == std::pair(1, 0));
  kernels::probe(y, {});  // on CUDA the fastest is the default
  CHECK(vendor_runs > 0);
  CHECK(captured() == std::pair(0, 1));
  CHECK(tuned_calls(Device("cuda")).size() >= 1);
  CHECK(autotune_file(Device("cuda")) != autotune_file({}));
}
