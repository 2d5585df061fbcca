// Learning rate schedules, and the scheduler that gives them to an optimizer.
#include "ringgrad/nn/optim/lr_scheduler.h"

#include <cmath>
#include <functional>

#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

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
  // The peak is the first step. In one multiplication and addition 0.1 · 10 - 1 is 5.6e-17.
  REQUIRE(optim::OneCycleLR{.max_lr = 1, .total_steps = 10, .pct_start = 0.1}(0, 0) == 1);
  const optim::CyclicLR cyclic{.max_lr = 1, .step_size_up = 2};
  REQUIRE(cyclic(0, 3) == 0.5);
  REQUIRE(cyclic(0, 4) == 0);
}

TEST_CASE("schedules refuse numbers that describe none", "[quick]") {
  const auto refused = [](const std::string& text, const optim::Schedule& schedule) {
    require_error<Error>(text, [&] { schedule(1, 0); });
  };
  using namespace optim;
  refused("StepLR: step_size is 0, expected", StepLR{.step_size = 0});
  refused("MultiStepLR: the milestones are not ascending", MultiStepLR{.milestones = {5, 3}});
  refused("CosineAnnealingLR: t_max is 0, expected", CosineAnnealingLR{.t_max = 0});
  refused("ConstantLR: the factor is -0.5, expected", ConstantLR{.factor = -0.5});
  refused("ConstantLR: the factor is 1.5, expected", ConstantLR{.factor = 1.5});
  refused("PolynomialLR: total_iters is 0, expected", PolynomialLR{.total_iters = 0});
  refused("t_0 is 0, t_mult 1, expected", CosineAnnealingWarmRestarts{.t_0 = 0, .t_mult = 1});
  refused("t_0 is 3, t_mult 0, expected", CosineAnnealingWarmRestarts{.t_0 = 3, .t_mult = 0});
  refused("CyclicLR: 0 steps up and 2 down",
          CyclicLR{.max_lr = 1, .step_size_up = 0, .step_size_down = 2});
  refused("CyclicLR: 2 steps up and -2 down",
          CyclicLR{.max_lr = 1, .step_size_up = 2, .step_size_down = -2});
  refused("LinearLR: total_iters is 0, expected", LinearLR{.total_iters = 0});
  refused("OneCycleLR: total_steps is 1,", OneCycleLR{.total_steps = 1});
  refused("pct_start -0.5, expected", OneCycleLR{.pct_start = -0.5});
  refused("pct_start 1.5, expected", OneCycleLR{.pct_start = 1.5});
  refused("SequentialLR: 0 schedules and 0 milestones",
          SequentialLR{.schedules = {}, .milestones = {}});
  refused("SequentialLR: 1 schedules and 1 milestones",
          SequentialLR{.schedules = {StepLR()}, .milestones = {3}});
  refused("SequentialLR: the milestones are not ascending",
          SequentialLR{.schedules = {StepLR(), StepLR(), StepLR()}, .milestones = {3, 1}});
}

TEST_CASE("a plateau's state goes on in another one, and its rates end at the least", "[quick]") {
  const Tensor x = zeros({1}).set_requires_grad();
  optim::SGD optimizer(std::vector<Tensor>{x}, optim::SGDOptions{.lr = 1});
  const optim::ReduceLROnPlateauOptions options = {
      .factor = 0.5, .patience = 1, .cooldown = 2, .min_lr = 0.3};
  optim::ReduceLROnPlateau first(optimizer, options);
  for (const double measure : {5.0, 3.0, 4.0}) first.step(measure);
  REQUIRE(to_vector<double>(first.state()) == std::vector<double>{3, 1, 0});
  optim::ReduceLROnPlateau second(optimizer, options);
  second.set_state(first.state());
  second.step(4);  // the second bad step
  REQUIRE(optimizer.lr() == 0.5);
  REQUIRE(to_vector<double>(second.state()) == std::vector<double>{3, 0, 2});
  optim::ReduceLROnPlateau third(optimizer, options);
  third.set_state(second.state());
  const double rates[] = {0.5, 0.5, 0.5, 0.3, 0.3, 0.3, 0.3, 0.3};
  for (const double rate : rates) {
    third.step(4);
    REQUIRE(optimizer.lr() == rate);
  }
  for (const Tensor& wrong : {Tensor(), zeros({2}, {.dtype = DType::Float64})})
    require_error<ShapeError>("the state is not that of another one",
                              [&] { third.set_state(wrong); });
  for (const double factor : {0.0, 1.0})
    require_error<Error>("ReduceLROnPlateau: the factor is",
                         [&] { optim::ReduceLROnPlateau(optimizer, {.factor = factor}); });
}

TEST_CASE("schedules without a function, or with numbers that overflow, are refused or exact",
          "[quick]") {
  const Tensor x = zeros({1}).set_requires_grad();
  optim::SGD optimizer(std::vector<Tensor>{x}, {.lr = 1});
  CHECK_THROWS_AS(optim::LRScheduler(optimizer, nullptr), Error);
  CHECK_THROWS_AS(optim::LRScheduler(optimizer, optim::Schedule()), Error);
  CHECK_THROWS_AS(optim::LambdaLR{}(1, 0), Error);
  CHECK_THROWS_AS(optim::MultiplicativeLR{}(1, 1), Error);
  CHECK_THROWS_AS((optim::SequentialLR{.schedules = {nullptr}, .milestones = {}}(1, 0)), Error);
  CHECK_THROWS_AS((optim::CyclicLR{.step_size_up = INT64_MAX, .step_size_down = 1}(1, 0)), Error);
  const optim::CosineAnnealingWarmRestarts restarts{.t_0 = 2, .t_mult = INT64_MAX};
  CHECK(restarts(1, 2) == 1);  // the second period has just begun
  CHECK(restarts(1, 1000) > 0.999);
}

TEST_CASE("a schedule that throws changes no group's rate", "[quick]") {
  const Tensor a = zeros({1}).set_requires_grad();
  const Tensor b = zeros({1}).set_requires_grad();
  optim::SGD optimizer({{std::vector<Tensor>{a}, {.lr = 1}}, {std::vector<Tensor>{b}, {.lr = 4}}});
  optim::LRScheduler scheduler(optimizer, [](double base_lr, int64_t step) {
    if (step == 1 && base_lr == 4) throw Error("no rate");
    return base_lr / static_cast<double>(step + 1);
  });
  CHECK_THROWS_AS(scheduler.step(), Error);
  CHECK(optimizer.lr(0) == 1);
  CHECK(scheduler.last_step() == 0);
}

TEST_CASE("a plateau's state that is none is refused, and changes nothing", "[quick]") {
  const Tensor x = zeros({1}).set_requires_grad();
  optim::SGD optimizer(std::vector<Tensor>{x}, {.lr = 1});
  optim::ReduceLROnPlateau scheduler(optimizer);
  const auto before = to_vector<double>(scheduler.state());
  for (const double steps : {double{NAN}, -1., 1e300})
    CHECK_THROWS_AS(scheduler.set_state(tensor<double>({0, steps, 0})), Error);
  CHECK(to_vector<double>(scheduler.state()) == before);
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
