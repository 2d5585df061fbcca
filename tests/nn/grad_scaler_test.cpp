// Dynamic loss scaling: the rule, steps that are skipped, and what survives a checkpoint; on the
// CPU and on CUDA, where a whole step with it can be captured.
#include "ringgrad/nn/optim/mixed_precision.h"

#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/cuda_util.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::grad_scaler_test {

namespace {

std::vector<Device> devices() {
  std::vector<Device> all{Device()};
  if (device_count(DeviceType::CUDA) > 0) all.push_back(Device("cuda"));
  return all;
}

Tensor weight(Device device) {
  const Tensor w = tensor<float>({1, -2, 3}, device);
  w.set_requires_grad();
  return w;
}

// d(loss)/dw is `slope` in the first element.
Tensor loss_of(const Tensor& w, double slope) {
  return sum(mul(w, tensor<float>({static_cast<float>(slope), 0.5f, -1}, w.device())));
}

const double kInf = INFINITY;
const double kNan = NAN;

}  // namespace

TEST_CASE("an undefined loss is refused", "[grad_scaler][quick]") {
  require_error<Error>("GradScaler: the loss is an undefined tensor",
                       [] { optim::GradScaler(Device()).scale({}); });
}

TEST_CASE("steps with gradients that are not finite are skipped, bit for bit",
          "[grad_scaler][quick]") {
  const std::vector<double> slopes = {1, kInf, 2, kNan, kNan, 0.25, 1, -kInf, 3};
  for (const Device device : devices())
    for (const bool adam : {false, true}) {
      const Tensor scaled = weight(device);
      const Tensor plain = weight(device);
      const auto optimizer_of = [&](const Tensor& w) -> std::unique_ptr<optim::Optimizer> {
        const std::vector<Tensor> parameters{w};
        if (adam) return std::make_unique<optim::Adam>(parameters, optim::AdamOptions{.lr = 0.1});
        return std::make_unique<optim::SGD>(
            parameters, optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
      };
      const auto first = optimizer_of(scaled);
      const auto second = optimizer_of(plain);
      optim::GradScaler scaler(device, {.initial_scale = 1024, .growth_interval = 2});
      double expected = 1024;
      int good = 0;
      for (const double slope : slopes) {
        first->zero_grad();
        scaler.scale(loss_of(scaled, slope)).backward();
        scaler.step(*first);
        scaler.update();
        if (std::isfinite(slope)) {
          second->zero_grad();
          loss_of(plain, slope).backward();
          second->step();
          if (++good == 2) {
            expected *= 2;
            good = 0;
          }
        } else {
          expected /= 2;
          good = 0;
        }
        INFO(device << ", " << (adam ? "Adam" : "SGD") << ", slope " << slope);
        REQUIRE(to_vector<float>(scaled) == to_vector<float>(plain));
        REQUIRE(scaler.current_scale() == expected);
      }
      const auto state = first->state_dict();
      const auto want = second->state_dict();
      for (size_t i = 0; i < want.size(); ++i)
        REQUIRE(to_vector<double>(state[i].second) == to_vector<double>(want[i].second));
    }
}

TEST_CASE("gradients can be clipped between unscale and step", "[grad_scaler][quick]") {
  const Tensor w = weight({});
  optim::SGD optimizer(std::vector<Tensor>{w}, {.lr = 1});
  optim::GradScaler scaler({}, {.initial_scale = 8});
  scaler.scale(loss_of(w, 4)).backward();
  REQUIRE(to_vector<float>(w.grad()) == std::vector<float>{32, 4, -8});
  scaler.unscale(optimizer);
  REQUIRE(to_vector<float>(w.grad()) == std::vector<float>{4, 0.5f, -1});
  fill_(w.grad(), 1);
  scaler.step(optimizer);  // does not divide again
  REQUIRE(to_vector<float>(w) == std::vector<float>{0, -3, 2});
}

TEST_CASE("gradients that come after unscale() are not left scaled", "[grad_scaler][quick]") {
  const Tensor w = weight({});
  optim::SGD optimizer(std::vector<Tensor>{w}, {.lr = 1});
  optim::GradScaler scaler({}, {.initial_scale = 8});
  scaler.scale(loss_of(w, 4)).backward();
  scaler.unscale(optimizer);
  scaler.scale(loss_of(w, 4)).backward();
  require_error<Error>("GradScaler: unscale() twice without update() in between",
                       [&] { scaler.unscale(optimizer); });
}

TEST_CASE("float16 gradients are divided by a scale whose inverse float16 does not have",
          "[grad_scaler][quick]") {
  for (const Device device : devices()) {
    const Tensor w = zeros({2}, {.dtype = DType::Float16, .device = device});
    w.set_requires_grad();
    optim::SGD optimizer(std::vector<Tensor>{w}, {.lr = 1});
    optim::GradScaler scaler(device, {.initial_scale = 0x1p26});
    fill_(w.grad(), 64);
    scaler.unscale(optimizer);
    REQUIRE(to_vector<float>(w.grad()) == std::vector<float>(2, 0x1p-20f));
    scaler.step(optimizer);
    REQUIRE(to_vector<float>(w) == std::vector<float>(2, -0x1p-20f));
  }
}

TEST_CASE("large gradients are finite, too", "[grad_scaler][quick]") {
  const Tensor w = weight({});
  optim::SGD optimizer(std::vector<Tensor>{w}, {.lr = 1e-19});
  optim::GradScaler scaler({}, {.initial_scale = 2});
  scaler.scale(loss_of(w, 4e19)).backward();  // its square is no float32
  scaler.step(optimizer);
  scaler.update();
  REQUIRE(std::abs(to_vector<float>(w)[0] + 3) < 1e-6);
  REQUIRE(scaler.current_scale() == 2);
}

TEST_CASE("a group of frozen parameters follows the others to another device",
          "[grad_scaler][quick]") {
  for (const Device device : devices()) {
    nn::Linear frozen{2, 2};
    nn::Linear free{2, 2};
    for (const Tensor& p : frozen.parameters()) p.set_requires_grad(false);
    optim::SGD optimizer({{frozen.parameters(), {.lr = 1}}, {free.parameters(), {.lr = 1}}});
    free.to(device);
    optim::GradScaler scaler(device, {.initial_scale = 2});
    const auto before = to_vector<float>(free.bias);
    scaler.scale(sum(free(ones({1, 2}, {.device = device})))).backward();
    scaler.step(optimizer);
    REQUIRE(to_vector<float>(free.bias) == std::vector<float>{before[0] - 1, before[1] - 1});
  }
}

TEST_CASE(
    "a float16 loss is scaled in float32, and its first step skipped where the scale is no float16",
    "[grad_scaler][quick]") {
  const Tensor w = full({1}, 2, {.dtype = DType::Float16});
  w.set_requires_grad();
  optim::SGD optimizer(std::vector<Tensor>{w}, {.lr = 0.25});
  optim::GradScaler scaler;
  const auto step = [&] {
    optimizer.zero_grad();
    const Tensor loss = scaler.scale(sum(w * 1.5));
    REQUIRE(loss.dtype() == DType::Float32);
    REQUIRE(loss.item<double>() == 3 * scaler.current_scale());
    loss.backward();
    scaler.step(optimizer);
    scaler.update();
    return w.item<float>();
  };
  REQUIRE(step() == 2);
  REQUIRE(scaler.current_scale() == 32768);
  REQUIRE(step() == 1.625f);
}

TEST_CASE("a second step before update() is refused", "[grad_scaler][quick]") {
  const Tensor w = weight({});
  optim::SGD optimizer(std::vector<Tensor>{w}, {.lr = 1});
  optim::GradScaler scaler;
  scaler.step(optimizer);
  require_error<Error>("GradScaler: step() twice without update()",
                       [&] { scaler.step(optimizer); });
  scaler.update();
  scaler.step(optimizer);
}

TEST_CASE("a scaler goes on where its state was saved", "[grad_scaler][quick]") {
  const Tensor w = weight({});
  optim::SGD optimizer(std::vector<Tensor>{w}, {.lr = 0.1});
  optim::GradScaler scaler({}, {.initial_scale = 4, .growth_interval = 3});
  optim::GradScaler other({}, {.growth_interval = 3});
  const auto step = [&](optim::GradScaler& with) {
    optimizer.zero_grad();
    with.scale(loss_of(w, 1)).backward();
    with.step(optimizer);
    with.update();
  };
  step(scaler);
  step(scaler);
  nn::copy_by_name("grad_scaler", other.state_dict(), scaler.state_dict(), true);
  step(other);
  REQUIRE(other.current_scale() == 8);
  require_error<Error>("GradScaler: initial scale 0",
                       [] { optim::GradScaler({}, {.initial_scale = 0}); });
}

TEST_CASE("two optimizers share a scale, and each has its own verdict", "[grad_scaler][quick]") {
  const Tensor a = weight({});
  const Tensor b = weight({});
  optim::SGD first(std::vector<Tensor>{a}, {.lr = 1});
  optim::SGD second(std::vector<Tensor>{b}, {.lr = 1});
  optim::GradScaler scaler({}, {.initial_scale = 8, .growth_interval = 2});
  require_error<Error>("update() without a step()", [&] { scaler.update(); });
  const auto step = [&](double slope_of_a) {
    first.zero_grad();
    second.zero_grad();
    scaler.scale(loss_of(a, slope_of_a) + loss_of(b, 4)).backward();
    scaler.unscale(first);
    scaler.unscale(second);
    REQUIRE(to_vector<float>(b.grad()) == std::vector<float>{4, 0.5f, -1});
    scaler.step(first);
    scaler.step(second);
    scaler.update();
  };
  step(kInf);  // b steps all the same, by gradients of the right size
  REQUIRE(to_vector<float>(a) == std::vector<float>{1, -2, 3});
  REQUIRE(to_vector<float>(b) == std::vector<float>{-3, -2.5f, 4});
  REQUIRE(scaler.current_scale() == 4);
  step(1);
  REQUIRE(scaler.current_scale() == 4);  // one good step, though two optimizers took it
  step(1);
  REQUIRE(scaler.current_scale() == 8);
}

TEST_CASE("a scaled step can be captured, and skips at each launch as its gradients demand",
          "[grad_scaler][quick][cuda]") {
  if (!enough_devices(1)) return;
  const Device device("cuda");
  const Tensor w = weight(device);
  const Tensor slope = tensor<float>({1, 1, 1}, device);
  optim::SGD optimizer(std::vector<Tensor>{w}, {.lr = 0.5});
  optim::GradScaler scaler(device, {.initial_scale = 16});
  const auto step = [&] {
    optimizer.zero_grad();
    scaler.scale(sum(mul(w, slope))).backward();
    scaler.step(optimizer);
    scaler.update();
  };
  step();
  const auto graph = device_backend(DeviceType::CUDA).capture(0, step);
  graph->launch(current_stream(device));
  REQUIRE(to_vector<float>(w) == std::vector<float>{0, -3, 2});
  fill_(slope, INFINITY);
  graph->launch(current_stream(device));
  REQUIRE(to_vector<float>(w) == std::vector<float>{0, -3, 2});
  REQUIRE(scaler.current_scale() == 8);
}

}  // namespace ringgrad::test::grad_scaler_test
