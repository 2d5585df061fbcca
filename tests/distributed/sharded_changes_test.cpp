// ZeRO when something changes between steps: parameters are unfrozen, gradients are given up, or
// another optimizer takes over.
#include <algorithm>

#include "ringgrad/distributed/sharded_optimizer.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"

namespace ringgrad::test::sharded_changes_test {

namespace {

using Values = std::vector<double>;

const BucketCaps kSmallBuckets = {.first_bytes = 200, .bytes = 400};

void add_gradient(DistributedDataParallel& ddp, const ProcessGroup& group, int64_t step) {
  const auto [x, target] =
      samples({6}, 3, DType::Float32, step * 12, step * 12 + 12, group.rank(), group.size());
  cross_entropy(ddp(x), target).backward();
}

// The parameters, and the optimizer's whole state.
Values numbers_of(DistributedDataParallel& ddp, optim::Optimizer& optimizer) {
  ddp.check_identical();
  Values all = flat_values(ddp);
  for (const auto& [name, tensor] : optimizer.state_dict())
    for (const double value : to_vector<double>(tensor)) all.push_back(value);
  return all;
}

Values unfrozen(int ranks, int zero) {
  Values result;
  run_ddp_ranks(ranks, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.caps = kSmallBuckets, .zero = zero});
    const auto freeze = [&](bool on) {
      for (const Tensor& parameter : net->middle.parameters())
        Tensor(parameter).set_requires_grad(!on);
    };
    freeze(true);
    optim::AdamW optimizer(ddp.named_parameters(), {.lr = 0.01});
    if (zero > 0) optimizer.share(ddp.step_share());
    for (int64_t step = 0; step < 6; ++step) {
      if (step == 3) freeze(false);
      optimizer.zero_grad();
      add_gradient(ddp, group, step);
      optimizer.step();
    }
    const Values all = numbers_of(ddp, optimizer);
    if (group.rank() == ranks - 1) result = all;
  });
  return result;
}

// Steps of the first layer, each behind a gradient of all layers that is given up.
Values after_trials(int zero) {
  Values result;
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.caps = kSmallBuckets, .zero = zero});
    optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
    if (zero > 0) optimizer.share(ddp.step_share());
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      {
        const auto trial = ddp.no_sync();
        add_gradient(ddp, group, step);
      }
      optimizer.zero_grad();
      const Tensor x = full({2, 6}, group.rank() + 1);
      ddp.apply([&](nn::Module&, const Tensor& batch) { return net->first(batch).sum(); }, x)
          .backward();
      optimizer.step();
    }
    const Values all = numbers_of(ddp, optimizer);
    if (group.rank() == 1) result = all;
  });
  return result;
}

// Buckets are planned anew between a backward and its step.
Values planned_anew(int zero) {
  Values result;
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.caps = kSmallBuckets, .zero = zero});
    optim::AdamW optimizer(ddp.named_parameters(), {.lr = 0.01});
    if (zero > 0) optimizer.share(ddp.step_share());
    for (int64_t step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      add_gradient(ddp, group, step);
      std::vector<std::string> order = ddp.ready_order();
      std::ranges::reverse(order);
      if (step == 2) ddp.set_ready_order(order);
      optimizer.step();
    }
    const Values all = numbers_of(ddp, optimizer);
    if (group.rank() == 1) result = all;
  });
  return result;
}

}  // namespace

TEST_CASE("divided steps with buckets that are planned anew before them",
          "[sharded_optimizer][quick][threads]") {
  for (const int zero : {1, 2}) {
    CAPTURE(zero);
    CHECK(planned_anew(zero) == planned_anew(0));
  }
}

TEST_CASE("divided steps of parameters that were frozen when the optimizer was made",
          "[sharded_optimizer][quick][threads]") {
  for (const int ranks : {1, 2, 3}) {
    const Values plain = unfrozen(ranks, 0);
    for (const int zero : {1, 2}) {
      CAPTURE(ranks, zero);
      CHECK(unfrozen(ranks, zero) == plain);
    }
  }
}

TEST_CASE("zero_grad() forgets gradients that no step has averaged",
          "[sharded_optimizer][quick][threads]") {
  const Values plain = after_trials(0);
  for (const int zero : {1, 2}) CHECK(after_trials(zero) == plain);
}

TEST_CASE("clipping finds the optimizer that has taken another's place",
          "[sharded_optimizer][quick][threads]") {
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.zero = 1});
    const auto make = [&] {
      return std::make_unique<ShardedOptimizer<optim::SGD>>(ddp, ddp.named_parameters(),
                                                            optim::SGDOptions{.lr = 0.1});
    };
    auto optimizer = make();
    optimizer = make();
    const auto norm = [&] {
      optimizer->zero_grad();
      add_gradient(ddp, group, 0);
      return optim::clip_grad_norm_(ddp.parameters(), 0.01).item<double>();
    };
    const double of_second = norm();
    must(of_second > 0.01, "there is a norm");
    make();  // and is destroyed at once
    must(norm() == of_second, "clipping finds the optimizer that is left");
  });
}

}  // namespace ringgrad::test::sharded_changes_test
