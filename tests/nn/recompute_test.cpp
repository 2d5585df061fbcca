// Recomputation: backward runs a part of the network again instead of keeping what it reads.
// Nothing else may differ: gradients, running statistics, random numbers and hooks are bit for bit
// those of the plain run.
#include "ringgrad/nn/recompute.h"

#include "ringgrad/autograd/autocast.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/distributed/data_parallel.h"
#include "ringgrad/distributed/sync_batch_norm.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::recompute_test {

namespace {

// A residual block with everything that a second run must do like the first: batch norm, dropout,
// and an input that is used twice.
struct Block : nn::Module {
  nn::Conv2d conv1{4, 4, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm2d bn1{4};
  nn::Dropout dropout{0.3};
  nn::Conv2d conv2{4, 4, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm2d bn2{4};
  Block() {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("dropout", dropout);
    register_module("conv2", conv2);
    register_module("bn2", bn2);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = dropout(bn1(conv1(x), {.activation = Activation::Relu}));
    return bn2(conv2(h), {.activation = Activation::Relu, .residual = x});
  }
};

struct Net : nn::Module {
  nn::Conv2d stem{1, 4, 3, {.padding = 1}};
  // Eight: runs of two.
  nn::Sequential blocks{Block(), Block(), Block(), Block(), Block(), Block(), Block(), Block()};
  nn::Linear fc{4 * 8 * 8, 10};
  Net() {
    register_module("stem", stem);
    register_module("blocks", blocks);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override { return fc(flatten(blocks(stem(x)), 1)); }
};

// The state after three steps: parameters, running statistics, random numbers.
struct Trained {
  std::vector<double> values;
  double next_random;
  std::vector<std::string> order;  // in which gradients became complete
  bool operator==(const Trained&) const = default;
};

Trained train(bool recompute, std::optional<DType> amp) {
  manual_seed(7);
  const auto net = make_net<Net>(3, DType::Float32);
  std::optional<nn::Recomputation> recomputation;
  if (recompute) recomputation.emplace(*net);
  Trained result;
  std::vector<HookHandle> hooks;
  for (const auto& [name, parameter] : net->named_parameters())
    hooks.push_back(register_post_accumulate_grad_hook(
        parameter, [&result, name = name](const Tensor&) { result.order.push_back(name); }));
  optim::SGD optimizer(net->named_parameters(), {.lr = 0.05, .momentum = 0.9});
  for (int64_t step = 0; step < 3; ++step) {
    const auto [x, target] = samples({1, 8, 8}, 10, DType::Float32, step * 8, step * 8 + 8);
    optimizer.zero_grad();
    Tensor loss;
    {
      const AutocastGuard autocast(amp);
      loss = cross_entropy((*net)(x), target);
    }
    loss.backward();
    optimizer.step();
  }
  result.values = flat_values(*net);  // with running statistics
  result.next_random = rand({1}).item<double>();
  return result;
}

}  // namespace

TEST_CASE("recomputed blocks train bit for bit as plain ones", "[recompute][quick]") {
  const std::optional<DType> amp =
      GENERATE(std::optional<DType>(), std::optional<DType>(DType::BFloat16));
  CHECK(train(true, amp) == train(false, amp));
}

TEST_CASE("between forward and backward, recomputed blocks hold little", "[recompute][quick]") {
  const auto held = [](bool recompute) {
    const auto net = make_net<Net>(3, DType::Float32);
    std::optional<nn::Recomputation> recomputation;
    if (recompute) recomputation.emplace(*net);
    const auto [x, target] = samples({1, 8, 8}, 10, DType::Float32, 0, 256);
    const int64_t before = memory_stats({}).live_bytes;
    const Tensor y = (*net)(x);
    return memory_stats({}).live_bytes - before;
  };
  // Each run of two blocks keeps only its input, out of some sixteen tensors of that size.
  CHECK(held(true) * 6 < held(false));
}

TEST_CASE("checkpoint(): inputs, nesting, graphs that are kept", "[recompute][quick]") {
  manual_seed(3);
  const Tensor x = randn({5, 6}, {.dtype = DType::Float64});
  const Tensor w = randn({6, 6}, {.dtype = DType::Float64});
  x.set_requires_grad();
  w.set_requires_grad();
  int runs = 0;
  const auto f = [&](const Tensor& a, const Tensor& b) {
    ++runs;
    return tanh(matmul(a, b)) * sigmoid(a);
  };
  const auto nested = [&](const Tensor& a, const Tensor& b) {
    return nn::checkpoint(f, nn::checkpoint(f, a, b), b) + a;
  };
  const Tensor plain = sum(f(f(x, w), w) + x);
  const auto want = autograd::grad({plain}, {x, w});

  runs = 0;
  const Tensor once = sum(nn::checkpoint(f, nn::checkpoint(f, x, w), w) + x);
  CHECK(runs == 2);
  const auto got = autograd::grad({once}, {x, w}, {.retain_graph = true});
  CHECK(runs == 4);
  const auto again = autograd::grad({once}, {x, w});
  CHECK(runs == 6);
  const Tensor deep = sum(nn::checkpoint(nested, x, w));
  const auto of_nested = autograd::grad({deep}, {x, w});
  for (size_t i = 0; i < 2; ++i) {
    CHECK(to_vector<double>(got[i]) == to_vector<double>(want[i]));
    CHECK(to_vector<double>(again[i]) == to_vector<double>(want[i]));
    CHECK(to_vector<double>(of_nested[i]) == to_vector<double>(want[i]));
  }

  runs = 0;
  {
    const NoGradGuard no_grad;
    (void)nn::checkpoint(f, x, w);
  }
  CHECK(runs == 1);
}

TEST_CASE("checkpoint(): an input may be undefined", "[recompute][quick]") {
  const Tensor x = tensor<float>({1, 2}).set_requires_grad();
  const auto f = [](const Tensor& mask, const Tensor& a) { return mask ? a * mask : a * a; };
  sum(nn::checkpoint(f, Tensor(), x)).backward();
  CHECK(to_vector<float>(x.grad()) == std::vector<float>{2, 4});
}

TEST_CASE("the second run computes in the first one's modes", "[recompute][quick]") {
  manual_seed(3);
  const Tensor x = randn({5, 6});
  const Tensor w = randn({6, 6});
  w.set_requires_grad();
  const auto f = [&](const Tensor& a) { return tanh(matmul(a, w)); };
  const auto gradient = [&](bool recompute) {
    Tensor y;
    {
      const AutocastGuard autocast;
      const ProviderGuard provider(Provider::Reference);
      y = recompute ? nn::checkpoint(f, x) : f(x);
    }
    return to_vector<double>(autograd::grad({sum(to(y, DType::Float32))}, {w})[0]);
  };
  CHECK(gradient(true) == gradient(false));
}

TEST_CASE("checkpoint() refuses what would be another gradient", "[recompute][quick]") {
  const Tensor x = ones({3});
  const Tensor w = ones({3});
  w.set_requires_grad();
  bool first = true;
  const auto changing = [&](const Tensor& a) {
    return std::exchange(first, false) ? exp(a * w) : tanh(a * w);
  };
  require_error<Error>("the second run recorded tanh where the first recorded exp",
                       [&] { sum(nn::checkpoint(changing, x)).backward(); });

  const auto product = [&](const Tensor& a) { return a * w; };
  const Tensor loss = sum(nn::checkpoint(product, x));
  {
    const NoGradGuard no_grad;
    w.mul_(2);
  }
  require_error<Error>("modified in place", [&] { loss.backward(); });
  const Tensor of_input = sum(nn::checkpoint(product, x));
  x.fill_(2);
  require_error<Error>("modified in place", [&] { of_input.backward(); });
}

TEST_CASE("a rank that recomputes trains with one that does not", "[recompute][quick][threads]") {
  const auto train_ranks = [](bool recompute, bool sync) {
    std::vector<double> values;
    std::vector<std::string> order;
    run_ddp_ranks(2, [&](ProcessGroup& group) {
      const auto net = make_net<Net>(3, DType::Float32);
      for (auto& [name, module] : net->named_modules())
        if (auto* dropout = dynamic_cast<nn::Dropout*>(module)) dropout->set_training(false);
      std::optional<nn::Recomputation> recomputation;
      // Each rank for itself: what ranks do together, they do in the first run.
      if (recompute && group.rank() == 0) recomputation.emplace(*net);
      if (sync) convert_sync_batchnorm(*net, group);
      DistributedDataParallel ddp(*net, group, {.caps = {400, 400}});
      optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.05});
      for (int64_t step = 0; step < 3; ++step) {
        const auto [x, target] = samples({1, 8, 8}, 10, DType::Float32, step * 8, step * 8 + 8,
                                         group.rank(), group.size());
        optimizer.zero_grad();
        cross_entropy(ddp(x), target).backward();
        optimizer.step();
      }
      ddp.check_identical();
      if (group.is_main_process()) {
        values = flat_values(ddp);
        order = ddp.ready_order();
      }
    });
    return std::pair(values, order);
  };
  for (const bool sync : {false, true}) CHECK(train_ranks(true, sync) == train_ranks(false, sync));
}

TEST_CASE("replicas recompute as their source does", "[recompute][quick][threads]") {
  const auto train_replicas = [](bool recompute) {
    const auto net = make_net<Net>(3, DType::Float32);
    net->apply([](nn::Module& module) {
      if (dynamic_cast<nn::Dropout*>(&module)) module.set_training(false);
    });
    std::optional<nn::Recomputation> recomputation;
    if (recompute) recomputation.emplace(*net);
    const auto make_replica = [] { return std::make_shared<Net>(); };
    DataParallel replicas(*net, make_replica, {Device(), Device()});
    const auto [x, target] = samples({1, 8, 8}, 10, DType::Float32, 0, 8);
    const int64_t before = memory_stats({}).live_bytes;
    const Tensor loss = cross_entropy(replicas(x), target);
    const int64_t held = memory_stats({}).live_bytes - before;
    loss.backward();
    return std::pair(gradients(*net), held);
  };
  const auto [gradients, held] = train_replicas(true);
  const auto [plain_gradients, plain_held] = train_replicas(false);
  CHECK(gradients == plain_gradients);
  CHECK(held * 2 < plain_held);
}

TEST_CASE("what fits in memory is not recomputed", "[recompute]") {
  const auto net = make_net<Net>(3, DType::Float32);
  nn::Recomputation recomputation(*net);
  CHECK(recomputation.size() == 4);
  const auto [x, target] = samples({1, 8, 8}, 10, DType::Float32, 0, 256);
  const auto step = [&, x = x, target = target] {
    net->zero_grad();
    reset_peak_memory({});
    cross_entropy((*net)(x), target).backward();
    return memory_stats({}).peak_bytes;
  };
  step();
  const int64_t least = step();
  require_error<Error>("with everything computed again",
                       [&] { recomputation.fit(least - 1, Device()); });
  // Room for about two of the four runs: not for all.
  const int64_t budget = least + 2 * (16 * 256 * 4 * 64 * 4);
  recomputation.fit(budget, Device());
  CHECK(recomputation.size() > 0);
  CHECK(recomputation.size() < 4);
  CHECK(step() <= budget);
  recomputation.fit(int64_t{1} << 40, Device());
  CHECK(recomputation.size() == 0);
}

TEST_CASE("a network without chains says so", "[recompute][quick]") {
  nn::Linear linear(2, 2);
  require_error<Error>("nothing to compute again", [&] { nn::Recomputation of(linear); });
}

}  // namespace ringgrad::test::recompute_test
