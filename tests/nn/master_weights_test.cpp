// Training 16-bit parameters through float32 copies.
#include "ringgrad/nn/optim/mixed_precision.h"

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::master_weights_test {

TEST_CASE("updates that a 16-bit number cannot hold add up in the copies",
          "[master_weights][quick]") {
  const DType dtype = GENERATE(DType::BFloat16, DType::Float16);
  const Tensor w = full({4}, 1, {.dtype = dtype});
  const Tensor alone = full({4}, 1, {.dtype = dtype});
  w.set_requires_grad();
  alone.set_requires_grad();
  optim::MasterWeights masters({{"w", w}});
  optim::SGD optimizer(masters.parameters(), {.lr = 1.0 / 4096});
  optim::SGD direct(std::vector<Tensor>{alone}, {.lr = 1.0 / 4096});
  for (int i = 0; i < 1024; ++i) {
    masters.zero_grad();
    sum(w).backward();
    masters.take_gradients();
    optimizer.step();
    masters.publish();
    direct.zero_grad();
    sum(alone).backward();
    direct.step();
  }
  REQUIRE(to_vector<double>(w) == std::vector<double>(4, 0.75));
  REQUIRE(to_vector<double>(alone) == std::vector<double>(4, 1));  // each step was rounded away
  REQUIRE(masters.parameters()[0].first == "w");
  REQUIRE(masters.parameters()[0].second.dtype() == DType::Float32);
}

TEST_CASE("a parameter without a gradient keeps its value", "[master_weights][quick]") {
  const Tensor used = full({2}, 1, {.dtype = DType::BFloat16});
  const Tensor unused = full({2}, 3, {.dtype = DType::BFloat16});
  used.set_requires_grad();
  unused.set_requires_grad();
  optim::MasterWeights masters({{"used", used}, {"unused", unused}});
  optim::SGD optimizer(masters.parameters(), {.lr = 1});
  sum(used).backward();
  masters.take_gradients();
  optimizer.step();
  masters.publish();
  REQUIRE(to_vector<double>(used) == std::vector<double>{0, 0});
  REQUIRE(to_vector<double>(unused) == std::vector<double>{3, 3});
}

TEST_CASE("a parameter that is frozen later keeps its value", "[master_weights][quick]") {
  const Tensor w = full({2}, 1, {.dtype = DType::BFloat16});
  const Tensor frozen = full({2}, 3, {.dtype = DType::BFloat16});
  w.set_requires_grad();
  frozen.set_requires_grad();
  optim::MasterWeights masters({{"w", w}, {"frozen", frozen}});
  optim::SGD optimizer(masters.parameters(), {.lr = 0.5, .momentum = 0.9, .weight_decay = 0.5});
  const auto step = [&] {
    masters.zero_grad();
    sum(w + frozen).backward();
    masters.take_gradients();
    optimizer.step();
    masters.publish();
  };
  step();
  frozen.set_requires_grad(false);
  const std::vector<double> before = to_vector<double>(frozen);
  const std::vector<double> moving = to_vector<double>(w);
  step();
  REQUIRE(to_vector<double>(frozen) == before);
  REQUIRE(to_vector<double>(w) != moving);
  frozen.set_requires_grad();
  step();
  REQUIRE(to_vector<double>(frozen) != before);
}

}  // namespace ringgrad::test::master_weights_test
