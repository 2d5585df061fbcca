// Learning rate schedules, and the scheduler that gives them to an optimizer.
#include "ringgrad/nn/optim/lr_scheduler.h"

#include <cmath>
#include <functional>

#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::scheduler_test {

namespace {

// PyTorch's schedulers multiply the rate of the step before; these are the same recursions.
void check_recursion(const optim::Schedule& schedule, double first, int64_t steps,
                     const std::function<double(double rate, int64_t step)>& next) {
  double rate = first;
  for (int64_t step = 0; step < steps; ++step) {
    INFO("step " << step);
    REQUIRE(std::abs(schedule(0.2, step) - rate) <= 1e-14);
    rate = next(rate, step + 1);
  }
}

}  // namespace

// The same against PyTorch's numbers: tests/golden_ops_test.cpp.
TEST_CASE("schedules follow the recursions they are the solutions of", "[quick]") {
  const double pi = std::acos(-1.0);
  check_recursion(optim::StepLR{.step_size = 3, .gamma = 0.5}, 0.2, 12,
                  [](double rate, int64_t step) { return step % 3 == 0 ? rate * 0.5 : rate; });
  check_recursion(
      optim::MultiStepLR{.milestones = {3, 5}, .gamma = 0.5}, 0.2, 9,
      [](double rate, int64_t step) { return step == 3 || step == 5 ? rate * 0.5 : rate; });
  check_recursion(optim::CosineAnnealingLR{.t_max = 8, .eta_min = 0.01}, 0.2, 8,
                  [&](double rate, int64_t step) {
                    const double t = static_cast<double>(step);
                    return 0.01 + (rate - 0.01) * (1 + std::cos(pi * t / 8)) /
                                      (1 + std::cos(pi * (t - 1) / 8));
                  });
  check_recursion(
      optim::LinearLR{.start_factor = 0.25, .total_iters = 4}, 0.05, 9,
      [](double rate, int64_t step) { return step <= 4 ? rate + 0.2 * 0.75 / 4 : rate; });
}

TEST_CASE("one cycle goes up, is symmetric about the middle of each half, and ends low",
          "[quick]") {
  const optim::OneCycleLR cycle{.max_lr = 1,
                                .total_steps = 41,
                                .pct_start = 11.0 / 41,
                                .div_factor = 10,
                                .final_div_factor = 100};
  const std::pair<int64_t, double> expected[] = {
      {0, 0.1}, {5, 0.55}, {10, 1}, {25, (1 + 0.001) / 2}, {40, 0.001}};
  for (const auto& [step, rate] : expected) REQUIRE(std::abs(cycle(0.5, step) - rate) < 1e-12);
  for (int64_t step = 0; step < 40; ++step)
    REQUIRE((cycle(0, step + 1) > cycle(0, step)) == (step < 10));
}

TEST_CASE("schedules one after the other count from their own beginnings", "[quick]") {
  const optim::LinearLR linear{.start_factor = 0.1, .total_iters = 3};
  const optim::CosineAnnealingLR cosine{.t_max = 9};
  const optim::SequentialLR both{.schedules = {linear, cosine, optim::StepLR{}},
                                 .milestones = {3, 7}};
  for (int64_t step = 0; step < 10; ++step)
    REQUIRE(both(0.2, step) == (step < 3   ? linear(0.2, step)
                                : step < 7 ? cosine(0.2, step - 3)
                                           : 0.2));
}

TEST_CASE("schedules at their edges", "[quick]") {
  const optim::OneCycleLR cycle{
      .max_lr = 1, .total_steps = 10, .div_factor = 10, .final_div_factor = 10};
  REQUIRE(std::abs(cycle(0, 9) - 0.01) < 1e-12);
  REQUIRE(cycle(0, 10) == cycle(0, 9));
  REQUIRE(cycle(0, 1000) == cycle(0, 9));
  REQUIRE(optim::OneCycleLR{.max_lr = 1, .total_steps = 10, .pct_start = 0}(0, 0) < 1);
  REQUIRE(optim::OneCycleLR{.max_lr = 1, .total_steps = 10, .pct_start = 1}(0, 9) == 1);
  // The peak is the second step.
  const optim::OneCycleLR early{.max_lr = 1, .total_steps = 10, .pct_start = 0.2, .div_factor = 10};
  REQUIRE(std::abs(early(0, 0) - 0.1) < 1e-12);
  REQUIRE(early(0, 1) == 1);
  REQUIRE(optim::StepLR{.step_size = 1, .gamma = 0.5}(1, 0) == 1);
  REQUIRE_THROWS_AS((optim::StepLR{.step_size = 0}(1, 0)), Error);
  REQUIRE_THROWS_AS((optim::MultiStepLR{.milestones = {5, 3}}(1, 0)), Error);
  REQUIRE_THROWS_AS((optim::CosineAnnealingLR{.t_max = 0}(1, 0)), Error);
  REQUIRE_THROWS_AS((optim::LinearLR{.total_iters = 0}(1, 0)), Error);
  REQUIRE_THROWS_AS((optim::OneCycleLR{.total_steps = 1}(1, 0)), Error);
  REQUIRE_THROWS_AS((optim::SequentialLR{.schedules = {}, .milestones = {}}(1, 0)), Error);
  REQUIRE_THROWS_AS((optim::SequentialLR{.schedules = {optim::StepLR()}, .milestones = {3}}(1, 0)),
                    Error);
}

TEST_CASE("a scheduler scales every group from its own rate", "[quick]") {
  const Tensor a = zeros({1}).set_requires_grad();
  const Tensor b = zeros({1}).set_requires_grad();
  optim::SGD optimizer({{std::vector<Tensor>{a}, {.lr = 1}}, {std::vector<Tensor>{b}, {.lr = 4}}});
  optim::LRScheduler scheduler(optimizer, optim::StepLR{.step_size = 1, .gamma = 0.5});
  scheduler.step();
  REQUIRE(optimizer.lr(0) == 0.5);
  REQUIRE(optimizer.lr(1) == 2);
  scheduler.step();
  REQUIRE(optimizer.lr(1) == 1);
  REQUIRE(scheduler.last_step() == 2);
  scheduler.set_last_step(1);
  REQUIRE(optimizer.lr(1) == 2);
  REQUIRE_THROWS_AS(scheduler.set_last_step(-1), Error);
}

}  // namespace ringgrad::test::scheduler_test
