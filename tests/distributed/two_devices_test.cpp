// Two logical CPU devices. A program of its own: their number is read once, at the first use.
#include <cstdlib>
#include <set>
#include <thread>

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/device/cpu_division.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/optim/clip_grad.h"
#include "ringgrad/nn/optim/lbfgs.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

// Before main, so before the first use.
const bool two_devices = setenv("RINGGRAD_CPU_DEVICES", "2", 1) == 0;

const Device kFirst("cpu:0"), kSecond("cpu:1");

}  // namespace

TEST_CASE("devices have memory accounts and streams of their own",
          "[two_devices][quick][threads]") {
  REQUIRE(device_count(DeviceType::CPU) == 2);
  const int64_t first = memory_stats(kFirst).live_bytes;
  const int64_t second = memory_stats(kSecond).live_bytes;
  const Tensor x = zeros({1024}, {.device = kSecond});
  CHECK(x.device() == kSecond);
  CHECK(memory_stats(kFirst).live_bytes == first);
  CHECK(memory_stats(kSecond).live_bytes == second + 4096);
  CHECK(!(current_stream(kFirst) == current_stream(kSecond)));
}

TEST_CASE("how many there are is said before the first use, or never",
          "[two_devices][quick][threads]") {
  REQUIRE(device_count(DeviceType::CPU) == 2);
  CHECK_NOTHROW(set_cpu_devices(2));
  CHECK_THROWS_WITH(set_cpu_devices(3), ContainsSubstring("and 2 is in use already"));
  CHECK_THROWS_WITH(set_cpu_devices(0), ContainsSubstring("expected 1 to 64"));
  const int cores = cpu_cores();
  CHECK_NOTHROW(set_cpu_cores(cores));
  CHECK_THROWS_WITH(set_cpu_cores(cores + 1), ContainsSubstring("is in use already"));
  CHECK_THROWS_WITH(set_cpu_cores(1025), ContainsSubstring("expected 1 to 1024"));
  CHECK(device_count(DeviceType::CPU) == 2);
  CHECK(cpu_cores() == cores);
}

TEST_CASE("a gradient from another device is refused", "[two_devices][quick][threads]") {
  const Tensor x = ones({2});
  x.set_requires_grad();
  const Tensor gradient = ones({2}, {.device = kSecond});
  require_error<DeviceError>("backward: the gradient is on cpu:1, expected cpu:0",
                             [&] { (x * 2).backward(gradient); });
}

TEST_CASE("operands on two devices are refused", "[two_devices][quick][threads]") {
  const Tensor a = ones({2});
  const Tensor b = ones({2}, {.device = kSecond});
  const auto mixed = [](const std::string& op) {
    return op + ": tensors on cpu:0 and cpu:1, expected one device; move with to(x, device)";
  };
  require_error<DeviceError>(mixed("add"), [&] { add(a, b); });
  require_error<DeviceError>(mixed("cat"), [&] { cat({a, b}); });
  require_error<DeviceError>(mixed("matmul"), [&] {
    matmul(reshape(a, {1, 2}), reshape(b, {2, 1}));
  });
  const Tensor index = tensor<int64_t>({0}, kSecond);
  require_error<DeviceError>("index_select: the tensor is on cpu:0, the index on cpu:1",
                             [&] { index_select(a, 0, index); });
  require_error<DeviceError>("cross_entropy: the target is on cpu:1, the input on cpu:0", [&] {
    cross_entropy(reshape(a, {1, 2}), index);
  });
  require_error<DeviceError>("batch_norm: the weight is on cpu:1, the input on cpu:0", [&] {
    batch_norm(reshape(a, {2, 1}), ones({1}, {.device = kSecond}), {}, {}, {});
  });
  require_error<DeviceError>("set_grad: the gradient is on cpu:1, expected cpu:0",
                             [&] { a.set_grad(b); });
  require_error<DeviceError>("index: a tensor of places is on cpu:1, the tensor on cpu:0",
                             [&] { a.index({index}); });
  const Tensor here = zeros({2}).set_requires_grad();
  const Tensor there = zeros({2}, {.device = kSecond}).set_requires_grad();
  here.set_grad(a);
  there.set_grad(b);
  require_error<DeviceError>("clip_grad_norm_: gradients on cpu:", [&] {
    optim::clip_grad_norm_({here, there}, 1);
  });
  require_error<Error>("LBFGS: parameter '' is float32 on cpu:1, the first one float32 on", [&] {
    optim::LBFGS(std::vector{here, there});
  });
  require_error<DeviceError>("to: device cpu:2 does not exist, expected an index below 2",
                             [&] { to(a, Device("cpu:2")); });
}

TEST_CASE("a gradient flows between devices, and each leaf's hook runs on its device's thread",
          "[two_devices][quick][threads]") {
  const Tensor x = Tensor(ones({3})).set_requires_grad();
  const Tensor w = Tensor(full({3}, 2, {.device = kSecond})).set_requires_grad();
  std::thread::id x_thread;
  std::thread::id w_thread;
  const auto on_x = register_post_accumulate_grad_hook(
      x, [&](const Tensor&) { x_thread = std::this_thread::get_id(); });
  const auto on_w = register_post_accumulate_grad_hook(
      w, [&](const Tensor&) { w_thread = std::this_thread::get_id(); });
  const Tensor y = to(to(x, kSecond) * w, kFirst);  // there and back
  sum(y * y).backward();                            // d/dx (x w)² = 2 x w²
  CHECK(to_vector<double>(x.grad()) == std::vector<double>(3, 8));
  CHECK(to_vector<double>(w.grad()) == std::vector<double>(3, 4));
  CHECK(w.grad().device() == kSecond);
  CHECK(x_thread == std::this_thread::get_id());  // the root's device is the caller's
  CHECK(w_thread != x_thread);
}

TEST_CASE("replicas run backward on their devices at the same time",
          "[two_devices][quick][threads]") {
  // Each closure waits until the other has started: with one thread for both this could never end.
  std::atomic<int> started{0};
  std::atomic<int> met{0};
  const auto meet = [&](const Tensor& x) {
    Tensor y = empty_like(x);
    copy_(y, x);
    return differentiable("meet", {x}, y, [&](const Tensor& dy) -> Gradients {
      ++started;
      for (int spin = 0; started < 2 && spin < 10'000; ++spin)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      met += started == 2;
      return {dy};
    });
  };
  const Tensor x = Tensor(ones({4})).set_requires_grad();
  const Tensor left = meet(slice(x, 0, 0, 2) * 2);
  const Tensor right = meet(to(slice(x, 0, 2, 4), kSecond) * 3);
  sum(left + to(right, kFirst)).backward();
  CHECK(met == 2);
  CHECK(to_vector<double>(x.grad()) == std::vector<double>{2, 2, 3, 3});
}

TEST_CASE("an exception on a worker's thread leaves backward", "[two_devices][quick][threads]") {
  struct Boom {};
  const Tensor w = Tensor(ones({1}, {.device = kSecond})).set_requires_grad();
  bool fail = true;
  bool on_caller = false;
  const std::thread::id caller = std::this_thread::get_id();
  const auto handle = register_post_accumulate_grad_hook(w, [&](const Tensor&) {
    queue_final_callback([&] { on_caller = std::this_thread::get_id() == caller; });
    if (fail) throw Boom();
  });
  const auto backward = [&] { to(w * 2, kFirst).backward(); };
  CHECK_THROWS_AS(backward(), Boom);
  CHECK(!on_caller);
  fail = false;
  backward();
  // A final callback queued by a worker runs on the thread that called backward().
  CHECK(on_caller);
  CHECK(w.grad().item<float>() == 4);
}

TEST_CASE("a gradient on the wrong device is named", "[two_devices][quick][threads]") {
  const Tensor x = Tensor(ones({1})).set_requires_grad();
  const Tensor bad = differentiable("bad", {x}, ones({1}), [](const Tensor&) -> Gradients {
    return {ones({1}, {.device = kSecond})};
  });
  require_error<DeviceError>("backward of bad: the gradient of input 0 is on cpu:1, expected cpu:0",
                             [&] { bad.backward(); });
}

TEST_CASE("worker threads run without grad mode", "[two_devices][quick][threads]") {
  const Tensor w = Tensor(ones({1}, {.device = kSecond})).set_requires_grad();
  bool joined = true;
  const auto handle = register_post_accumulate_grad_hook(
      w, [&](const Tensor& leaf) { joined = (leaf * 2).requires_grad(); });
  to(w * 2, kFirst).backward();
  CHECK(!joined);
}

TEST_CASE("an optimizer's state loads after its parameters have moved",
          "[two_devices][quick][threads]") {
  nn::Linear net(2, 1);
  optim::Adam before(net.named_parameters(), {.lr = 0.1});
  for (int step = 0; step < 3; ++step) {
    before.zero_grad();
    sum(net(ones({1, 2}))).backward();
    before.step();
  }
  nn::NamedTensors saved;
  for (const auto& [name, tensor] : before.state_dict())
    saved.emplace_back(name, copy_of(tensor, {tensor.dtype()}));
  optim::Adam after(net.named_parameters(), {.lr = 0.1});
  net.to(kSecond);
  after.load_state_dict(saved);
  const nn::NamedTensors loaded = after.state_dict();
  REQUIRE(loaded.size() == saved.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    INFO(saved[i].first);
    CHECK(to_vector<double>(loaded[i].second) == to_vector<double>(saved[i].second));
  }
}
