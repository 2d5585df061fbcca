// ShardedOptimizer: ranks that divide the optimizer's state train bit for bit as ranks that do not.
#include "ringgrad/distributed/sharded_optimizer.h"

#include "ringgrad/core/device/allocator.h"
#include "ringgrad/nn/optim/mixed_precision.h"
#include "ringgrad/nn/optim/muon.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

// A rank's result after some steps: its parameters, and the optimizer's whole state.
struct Trained {
  std::vector<double> values;
  std::vector<double> state;
  bool operator==(const Trained&) const = default;
};

std::vector<double> numbers_of(const nn::NamedTensors& state) {
  std::vector<double> all;
  for (const auto& [name, tensor] : state) {
    const auto values = to_vector<double>(tensor);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// Steps [begin, end). The middle layer is frozen in steps 2 and 3.
void steps(DistributedDataParallel& ddp, optim::Optimizer& optimizer, ProcessGroup& group,
           int64_t begin, int64_t end) {
  for (int64_t step = begin; step < end; ++step) {
    for (const auto& [name, parameter] : ddp.named_parameters())
      if (name.starts_with("middle")) Tensor(parameter).set_requires_grad(step != 2 && step != 3);
    const auto [x, target] =
        samples({6}, 3, DType::Float32, step * 12, step * 12 + 12, group.rank(), group.size());
    optimizer.zero_grad();
    cross_entropy(ddp(x), target).backward();
    optimizer.step();
  }
  ddp.check_identical();
}

template <class Plain, class Options>
Trained train(int ranks, const Options& options, bool divided) {
  Trained result;
  run_ddp_ranks(ranks, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    // Two groups of parameters, of which the second's size divides by no number of ranks.
    nn::NamedTensors weights;
    nn::NamedTensors biases;
    for (const auto& entry : ddp.named_parameters())
      (entry.first.ends_with("weight") ? weights : biases).push_back(entry);
    Options of_biases = options;
    of_biases.weight_decay = 0;
    const std::vector<optim::ParamGroup<Options>> groups{{weights, options}, {biases, of_biases}};
    std::unique_ptr<optim::Optimizer> optimizer;
    if (divided)
      optimizer = std::make_unique<ShardedOptimizer<Plain>>(group, groups);
    else
      optimizer = std::make_unique<Plain>(groups);
    steps(ddp, *optimizer, group, 0, 6);
    const std::vector<double> state = numbers_of(optimizer->state_dict());
    if (group.rank() == ranks - 1) result = {flat_values(ddp), state};
  });
  return result;
}

}  // namespace

TEST_CASE("a divided step is the undivided one", "[sharded_optimizer][quick][threads]") {
  const optim::SGDOptions sgd{.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-2};
  const optim::AdamWOptions adamw{.lr = 0.01, .weight_decay = 1e-2};
  const optim::AdamWOptions largest{.lr = 0.01, .amsgrad = true, .maximize = true};
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    CHECK(train<optim::SGD>(ranks, sgd, true) == train<optim::SGD>(ranks, sgd, false));
    CHECK(train<optim::AdamW>(ranks, adamw, true) == train<optim::AdamW>(ranks, adamw, false));
    CHECK(train<optim::AdamW>(ranks, largest, true) == train<optim::AdamW>(ranks, largest, false));
  }
}

TEST_CASE("any number of ranks goes on with a divided state",
          "[sharded_optimizer][quick][threads]") {
  nn::NamedTensors model;
  nn::NamedTensors state;
  const optim::AdamOptions options{.lr = 0.01};
  run_ddp_ranks(3, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    ShardedOptimizer<optim::Adam> optimizer(group, ddp.named_parameters(), options);
    steps(ddp, optimizer, group, 0, 2);
    const nn::NamedTensors all = optimizer.state_dict();
    if (!group.is_main_process()) return;
    for (const auto& [name, tensor] : all)
      state.emplace_back(name, copy_of(tensor, {tensor.dtype()}));
    for (const auto& [name, tensor] : net->state_dict())
      model.emplace_back(name, copy_of(tensor, {tensor.dtype()}));
  });
  const auto go_on = [&](int ranks, bool divided) {
    std::vector<double> values;
    run_ddp_ranks(ranks, [&](ProcessGroup& group) {
      const auto net = make_net<Mlp>(4, DType::Float32);
      net->load_state_dict(model);
      DistributedDataParallel ddp(*net, group);
      optim::Adam plain(ddp.named_parameters(), options);
      if (divided) plain.share(std::make_shared<RankShare>(group));
      plain.load_state_dict(state);
      steps(ddp, plain, group, 4, 7);
      if (group.is_main_process()) values = flat_values(ddp);
    });
    return values;
  };
  for (const int ranks : {1, 2, 4}) CHECK(go_on(ranks, true) == go_on(ranks, false));
}

TEST_CASE("a rank keeps its part of the state alone", "[sharded_optimizer][quick][threads]") {
  const auto kept = [](bool divided) {
    std::atomic<int64_t> bytes = 0;
    run_ddp_ranks(4, [&](ProcessGroup& group) {
      const auto net = make_seeded<nn::Linear>(1, 256, 1024);
      group.barrier().wait();
      const int64_t before = memory_stats({}).live_bytes;
      group.barrier().wait();
      optim::Adam optimizer(net->named_parameters(), {});
      if (divided) optimizer.share(std::make_shared<RankShare>(group));
      optimizer.zero_grad();
      optimizer.step();
      group.barrier().wait();
      // The bytes of all four ranks, which share one account.
      bytes = memory_stats({}).live_bytes - before;
      group.barrier().wait();
    });
    return bytes.load();
  };
  const double state = 4.0 * 2 * 256 * 1024 * sizeof(float);  // for four ranks
  CHECK(static_cast<double>(kept(false) - kept(true)) > 0.7 * state);
}

TEST_CASE("a divided step is skipped on all ranks", "[sharded_optimizer][quick][threads]") {
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.check_finite = false});
    ShardedOptimizer<optim::Adam> optimizer(group, ddp.named_parameters(), optim::AdamOptions{});
    optim::GradScaler scaler;
    const std::vector<double> before = flat_values(ddp);
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, 4, group.rank(), 2);
    optimizer.zero_grad();
    scaler.scale(cross_entropy(ddp(x), target) * INFINITY).backward();
    scaler.step(optimizer);
    scaler.update();
    must(flat_values(ddp) == before, "nothing changes");
    must(numbers_of(optimizer.state_dict())[0] == 0, "no step is counted");
  });
}

TEST_CASE("what cannot be divided is refused", "[sharded_optimizer][quick][threads]") {
  run_ddp_ranks(1, [&](ProcessGroup& group) {
    const auto net = make_seeded<nn::Linear>(1, 4, 4);
    const Tensor weight = net->named_parameters()[0].second;
    must_be_refused(group, "a step needs whole parameters",
                    [&] { ShardedOptimizer<optim::Muon> optimizer(group, std::vector{weight}); });
    optim::SGD optimizer(net->named_parameters(), {.lr = 0.1});
    optimizer.zero_grad();
    optimizer.step();
    must_be_refused(group, "after the first step",
                    [&] { optimizer.share(std::make_shared<RankShare>(group)); });
  });
}
