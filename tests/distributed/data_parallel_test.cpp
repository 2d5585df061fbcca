// DataParallel on two and three logical CPU devices. A program of its own: their number is read
// once. One file, because its tests share networks, replicas and devices.
#include "ringgrad/distributed/data_parallel.h"

#include <atomic>
#include <cstdlib>

#include "ringgrad/autograd/autocast.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/kernels/device_copies.h"
#include "ringgrad/distributed/virtual_ranks.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

// Before main, so before the first use.
const bool three_devices = setenv("RINGGRAD_CPU_DEVICES", "3", 1) == 0;

std::vector<Device> devices(int n) {
  std::vector<Device> list;
  for (int i = 0; i < n; ++i) list.push_back({DeviceType::CPU, i});
  return list;
}

template <class Net>
DataParallel::MakeReplica maker(DType dtype) {
  // The values differ on purpose.
  return [dtype] { return std::shared_ptr<nn::Module>(make_net<Net>(9, dtype)); };
}

// 20 steps; the last batch of each four has 7 samples. `n` devices; 0: without a wrapper.
template <class Net>
std::vector<double> train_on(int n, DType dtype, const Shape& sample, int64_t classes) {
  const auto net = make_net<Net>(3, dtype);
  std::unique_ptr<DataParallel> wrapper;
  if (n > 0) wrapper = std::make_unique<DataParallel>(*net, maker<Net>(dtype), devices(n));
  nn::Module& model = n > 0 ? static_cast<nn::Module&>(*wrapper) : *net;
  optim::SGD optimizer(model.named_parameters(),
                       {.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3});
  for (int64_t step = 0, begin = 0; step < 20; ++step) {
    const int64_t end = begin + (step % 4 == 3 ? 7 : 12);
    const auto [x, target] = samples(sample, classes, dtype, begin, end);
    optimizer.zero_grad();
    cross_entropy(model(x), target).backward();
    optimizer.step();
    begin = end;
  }
  return flat_values(model);
}

struct Failing : nn::Module {
  nn::Linear fc{6, 3};
  Failing() { register_module("fc", fc); }
  Tensor forward(const Tensor& x) override {
    if (x.device().index == 1) throw Error("boom");
    return fc(x);
  }
};

struct Normed : nn::Module {
  nn::BatchNorm2d bn{1};
  Normed() { register_module("bn", bn); }
  Tensor forward(const Tensor& x) override { return bn(x); }
};

}  // namespace

TEST_CASE("20 steps on several devices are 20 steps on one", "[data_parallel][quick][threads]") {
  const DType dtype = GENERATE(DType::Float32, DType::Float64);
  const double tolerance = training_tolerance(dtype);
  const auto mlp = train_on<Mlp>(0, dtype, {6}, 3);
  const auto cnn = train_on<SmallCnn>(0, dtype, {1, 8, 8}, 10);
  for (const int n : {1, 2, 3}) {
    CHECK(relative_difference(train_on<Mlp>(n, dtype, {6}, 3), mlp) < tolerance);
    CHECK(relative_difference(train_on<SmallCnn>(n, dtype, {1, 8, 8}, 10), cnn) < tolerance);
  }
}

// Between GPUs each copy has a price, whatever its size.
TEST_CASE("one copy for each dtype takes parameters to a replica, and their gradients back",
          "[data_parallel][quick][threads]") {
  NormedCnn net;
  DataParallel model(
      net, [] { return std::make_shared<NormedCnn>(); }, devices(3));
  const optim::SGD optimizer(model.named_parameters(), {.lr = 0.05});
  const Tensor x = samples({1, 8, 8}, 3, DType::Float32, 0, 12).x;
  const DeviceCopies copies;
  const Tensor loss = sum(square(model(x)));
  // For each replica but the first: input, parameters, running statistics, their counts, output.
  CHECK(copies.seen.size() == 2 * 5);
  loss.backward();
  CHECK(copies.seen.size() == 2 * 5 + 2 * 2);
}

// A network may leave a parameter out, of which only some replicas then have a gradient.
TEST_CASE("a parameter without a gradient in some replicas has the bits of the others'",
          "[data_parallel][quick][threads]") {
  struct Choosing : nn::Module {
    Tensor usual = ones({1, 2});
    Tensor of_second = ones({1, 2});
    Tensor never = ones({3});
    Choosing() {
      register_parameter("usual", usual);
      register_parameter("of_second", of_second);
      register_parameter("never", never);
    }
    Tensor forward(const Tensor& x) override {
      return x.device().index == 1 ? x * usual + x * of_second : x * usual;
    }
  };
  Choosing net;
  DataParallel model(
      net, [] { return std::make_shared<Choosing>(); }, devices(3));
  const Tensor x = full({3, 2}, -0.0);
  const Tensor loss = sum(model(x));
  for (const bool retain : {true, false}) {
    for (const Tensor& parameter : net.parameters()) parameter.set_grad({});
    loss.backward({}, retain);
    for (const Tensor& parameter : {net.usual, net.of_second})
      CHECK(std::signbit(to_vector<float>(parameter.grad())[0]));
    CHECK_FALSE(net.never.grad());
  }
  sum(model(slice(x, 0, 0, 1))).backward();  // one replica
  CHECK_FALSE(net.never.grad());
}

TEST_CASE("a batch is cut by PyTorch's chunk rule, and may leave devices idle",
          "[data_parallel][quick][threads]") {
  struct Counting : nn::Module {
    nn::Linear fc{6, 3};
    std::vector<int64_t>& seen;
    explicit Counting(std::vector<int64_t>& seen) : seen(seen) { register_module("fc", fc); }
    Tensor forward(const Tensor& x) override {
      seen[x.device().index] = x.size(0);
      return fc(x);
    }
  };
  std::vector<int64_t> seen(3);
  Counting net(seen);
  DataParallel model(
      net, [&] { return std::make_shared<Counting>(seen); }, devices(3));
  const auto cut = [&](int64_t batch) {
    seen = {0, 0, 0};
    CHECK(model(zeros({batch, 6})).shape() == Shape{batch, 3});
    return seen;
  };
  CHECK(cut(7) == std::vector<int64_t>{3, 3, 1});
  CHECK(cut(4) == std::vector<int64_t>{2, 2, 0});
  CHECK(cut(1) == std::vector<int64_t>{1, 0, 0});
}

TEST_CASE("several inputs, and outputs in a struct; of each loss there is one per replica",
          "[data_parallel][quick][threads]") {
  struct Outputs {
    Tensor logits;
    Tensor loss;
  };
  struct Net : Mlp {
    using Mlp::forward;
    Outputs forward(const Tensor& x, const Tensor& target) {
      const Tensor logits = forward(x);
      return {logits, cross_entropy(logits, target)};
    }
  };
  const auto net = make_net<Net>(3, DType::Float64);
  const auto alone = make_net<Net>(3, DType::Float64);
  DP model(
      *net, [] { return std::shared_ptr<Net>(make_net<Net>(9, DType::Float64)); }, devices(2));
  const auto [x, target] = samples({6}, 3, DType::Float64, 0, 8);
  const auto [logits, losses] = model(x, target);
  CHECK(logits.shape() == Shape{8, 3});
  CHECK(losses.shape() == Shape{2});
  mean(losses).backward();
  const Outputs expected = alone->forward(x, target);
  expected.loss.backward();
  CHECK(relative_difference(to_vector<double>(net->first.weight.grad()),
                            to_vector<double>(alone->first.weight.grad())) < 1e-12);
  CHECK(std::abs(mean(losses).item<double>() - expected.loss.item<double>()) < 1e-12);

  const auto [half, all] = model(slice(x, 0, 0, 1), slice(target, 0, 0, 1));  // too few for two
  CHECK(all.dim() == 0);
  require_error<ShapeError>("inputs of 8 and 7 samples", [&] { model(x, slice(target, 0, 0, 7)); });
}

TEST_CASE("frozen parameters get no gradient in the replicas", "[data_parallel][quick][threads]") {
  struct Watched : nn::Module {
    nn::Linear frozen{6, 4};
    nn::Linear head{4, 3};
    std::atomic<bool>* joined;  // every replica's thread writes it
    explicit Watched(std::atomic<bool>* joined) : joined(joined) {
      register_module("frozen", frozen);
      register_module("head", head);
    }
    Tensor forward(const Tensor& x) override {
      const Tensor features = frozen(x);
      if (features.requires_grad()) *joined = true;
      return head(features);
    }
  };
  std::atomic<bool> joined = false;
  Watched net(&joined);
  for (const Tensor& parameter : net.frozen.parameters()) parameter.set_requires_grad(false);
  DataParallel model(
      net, [&] { return std::make_shared<Watched>(&joined); }, devices(2));
  sum(model(ones({4, 6}))).backward();
  CHECK(!joined);
  CHECK(!net.frozen.weight.grad());
  CHECK(net.head.weight.grad());
  net.frozen.weight.set_requires_grad();  // from here on it is trained, too
  sum(model(ones({4, 6}))).backward();
  CHECK(joined);
  CHECK(net.frozen.weight.grad());
}

TEST_CASE("two forwards of frozen batch norm before one backward",
          "[data_parallel][quick][threads]") {
  Normed net;
  net.bn.eval();
  DataParallel model(
      net, [] { return std::make_shared<Normed>(); }, devices(2));
  const Tensor x = full({2, 1, 1, 2}, 3);
  const Tensor loss = sum(model(x)) + sum(model(x));
  loss.backward();
  CHECK(std::abs(net.bn.bias.grad().item<float>() - 8) < 1e-6);
}

TEST_CASE("an error in a replica names it", "[data_parallel][quick][threads]") {
  Failing net;
  DataParallel model(
      net, [] { return std::make_shared<Failing>(); }, devices(2));
  require_error<Error>("data_parallel: in replica 1 on cpu:1: boom", [&] { model(zeros({4, 6})); });
  CHECK(model(zeros({1, 6})).shape() == Shape{1, 3});
}

TEST_CASE("what is not there or does not fit is refused", "[data_parallel][quick][threads]") {
  Mlp net;
  const auto make = [] { return std::make_shared<Mlp>(); };
  require_error<Error>("no devices given", [&] { DataParallel(net, make, {}); });
  require_error<DeviceError>("device cpu:3 does not exist", [&] {
    DataParallel(net, make, {"cpu:0", "cpu:3"});
  });
  require_error<DeviceError>("first.weight is on cpu:0, expected the first device, cpu:1", [&] {
    DataParallel(net, make, {"cpu:1", "cpu:0"});
  });
  require_error<ShapeError>("a replica has 2 parameters, the module 6", [&] {
    DataParallel(
        net, [] { return std::make_shared<Failing>(); }, devices(2));
  });
  DataParallel model(net, make, devices(2));
  require_error<ShapeError>("expected a batch of at least one", [&] { model(zeros({0, 6})); });
  require_error<ShapeError>("expected a batch of at least one", [&] { model(zeros({})); });
  require_error<Error>("an input is an undefined tensor", [&] { model(Tensor()); });
  require_error<Error>("make_replica gave a null pointer", [&] {
    DataParallel(
        net, [] { return nullptr; }, devices(2));
  });
  nn::Sequential layers(nn::Linear(4, 4), nn::Tanh());
  const auto wrap = [&](const std::shared_ptr<nn::Sequential>& replica) {
    return [&layers, replica] {
      DataParallel(
          layers, [&] { return replica; }, devices(2));
    };
  };
  require_error<ShapeError>(
      "data_parallel: the module lacks a layer '2' (ReLU) of the replicas; make_replica must make",
      wrap(std::make_shared<nn::Sequential>(nn::Linear(4, 4), nn::Tanh(), nn::ReLU())));
  require_error<ShapeError>(
      "data_parallel: the module has a layer '1' (Tanh) where replicas have '1' (ReLU)",
      wrap(std::make_shared<nn::Sequential>(nn::Linear(4, 4), nn::ReLU())));
}

TEST_CASE("what replicas return is put together, or named if it does not fit",
          "[data_parallel][quick][threads]") {
  struct Net : Mlp {
    using Mlp::forward;
    // Of 0 the second tensor is nowhere, of 1 it is on the first device alone, of 2 as well, but
    // it is left out elsewhere.
    std::vector<Tensor> forward(const Tensor& x, const Tensor& kind) {
      const auto number = static_cast<int>(kind.item<double>());
      const bool is_first = x.device().index == 0;
      if (number == 3 && !is_first) throw OutOfMemoryError("no memory is left");
      std::vector<Tensor> outputs = {x * 2};
      if (is_first || number != 2) outputs.emplace_back();
      if (is_first && number > 0) outputs.back() = x;
      return outputs;
    }
  };
  Net net;
  DP model(
      net, [] { return std::make_shared<Net>(); }, devices(2));
  const Tensor x = ones({4, 6});
  const auto run = [&](double kind) { return model(x, scalar(kind)); };
  const std::vector<Tensor> both = run(0);
  REQUIRE(both.size() == 2);
  CHECK(both[0].shape() == x.shape());
  CHECK(!both[1].defined());
  require_error<Error>("one replica returned 2 tensors, another 2 or other undefined ones",
                       [&] { run(1); });
  require_error<Error>("one replica returned 2 tensors, another 1", [&] { run(2); });
  require_error<OutOfMemoryError>("data_parallel: in replica 1 on cpu:1: no memory is left",
                                  [&] { run(3); });
}

TEST_CASE("a module on several devices is none for DistributedDataParallel",
          "[data_parallel][quick][threads]") {
  const auto errors = errors_of_ranks(host_groups(1), [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    net->last.to("cpu:1");
    DistributedDataParallel(*net, group);
  });
  require_contains(errors[0],
                   "first.weight is on cpu:0, last.weight on cpu:1; move the module to one device");
}

TEST_CASE("only the first replica's running statistics are kept",
          "[data_parallel][quick][threads]") {
  Normed net;
  DataParallel model(
      net, [] { return std::make_shared<Normed>(); }, devices(2));
  const Tensor x = cat({full({1, 1, 1, 2}, 1), full({1, 1, 1, 2}, 5)});
  model(x);
  CHECK(std::abs(net.bn.running_mean.item<float>() - 0.1) < 1e-6);
  model.eval();
  const auto y = to_vector<float>(model(x));  // the second replica evaluates by the same statistics
  const Tensor alone = net.bn(x);
  CHECK(y == to_vector<float>(alone));
}

TEST_CASE("replicas have the module's modes, each layer its own",
          "[data_parallel][quick][threads]") {
  Normed net;
  net.bn.eval();  // frozen, while the rest trains
  DataParallel model(
      net, [] { return std::make_shared<Normed>(); }, devices(2));
  const Tensor x = cat({full({1, 1, 1, 2}, 1), full({1, 1, 1, 2}, 5)});
  CHECK(model.is_training());
  CHECK(to_vector<float>(model(x)) == to_vector<float>(net.bn(x)));
  CHECK(net.bn.running_mean.item<float>() == 0);
  net.eval();  // the module, not the wrapper
  CHECK(to_vector<float>(model(x)) == to_vector<float>(net.bn(x)));
  net.train();
  model(x);
  CHECK(net.bn.running_mean.item<float>() != 0);
}

TEST_CASE("replicas compute in 16 bits where the caller does", "[data_parallel][quick][threads]") {
  Mlp net;
  DataParallel model(
      net, [] { return std::make_shared<Mlp>(); }, devices(2));
  const Tensor x = samples({6}, 3, DType::Float32, 0, 4).x;
  const AutocastGuard autocast;
  const Tensor y = model(x);
  CHECK(y.dtype() == DType::BFloat16);
  CHECK(to_vector<float>(to(y, DType::Float32)) == to_vector<float>(to(net(x), DType::Float32)));
}

TEST_CASE("a replica without the module's buffers is refused", "[data_parallel][quick]") {
  struct Bare : nn::Module {
    nn::BatchNorm2d bn{2};
    Bare() { register_module("bn", bn); }
  };
  Normed net;
  CHECK_THROWS_AS(DataParallel(
                      net, [] { return std::make_shared<Bare>(); }, devices(2)),
                  ShapeError);
}

TEST_CASE("evaluation builds no graph, and names have no prefix",
          "[data_parallel][quick][threads]") {
  Mlp net;
  DataParallel model(
      net, [] { return std::make_shared<Mlp>(); }, devices(2));
  NoGradGuard no_grad;
  CHECK(!model(zeros({4, 6})).requires_grad());
  CHECK(model.state_dict().front().first == "first.weight");
}

TEST_CASE("the first device holds what all replicas put out", "[data_parallel][quick][threads]") {
  struct Wide : nn::Module {
    nn::Linear fc{6, 4096};
    Wide() { register_module("fc", fc); }
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  Wide net;
  DataParallel model(
      net, [] { return std::make_shared<Wide>(); }, devices(2));
  const auto live = [](const char* device) { return memory_stats(device).live_bytes; };
  NoGradGuard no_grad;
  model(zeros({64, 6}));
  const int64_t first = live("cpu:0");
  const int64_t second = live("cpu:1");
  const Tensor y = model(zeros({64, 6}));
  CHECK(live("cpu:0") - first >= 64 * 4096 * 4);
  CHECK(live("cpu:1") == second);
}

TEST_CASE("shards on several devices have the bits of one device",
          "[data_parallel][quick][threads]") {
  struct Net : nn::Module {
    nn::Linear first{6, 16};
    nn::Linear last{16, 3};
    nn::BatchNorm1d bn{16};
    nn::Dropout dropout{0.25};
    Net() {
      register_module("first", first);
      register_module("bn", bn);
      register_module("dropout", dropout);
      register_module("last", last);
    }
    Tensor forward(const Tensor& x) override { return last(dropout(relu(bn(first(x))))); }
  };
  const auto train = [](int n) {
    std::vector<double> bits;
    run_ddp_ranks(1, [&](ProcessGroup& group) {
      const auto net = make_net<Net>(3, DType::Float32);
      VirtualRanks ranks(*net, group,
                         {.shards = 5,
                          .seed = 7,
                          .devices = devices(n),
                          .make_replica = maker<Net>(DType::Float32)});
      optim::SGD optimizer(net->named_parameters(), {.lr = 0.05, .momentum = 0.9});
      for (const int64_t batch : {12, 11, 10}) {
        const auto [x, target] = samples({6}, 3, DType::Float32, 0, batch);
        bits.push_back(
            ranks.step(batch, [&, x = x, target = target](const VirtualRanks::Shard& shard) {
              const auto rows = [&](const Tensor& all) {
                return to(slice(all, 0, shard.begin, shard.end), shard.device);
              };
              const Tensor sum = cross_entropy((*shard.module)(rows(x)), rows(target),
                                               {.reduction = Reduction::Sum});
              sum.backward();
              return sum;
            }));
        optimizer.step();
      }
      const auto state = flat_values(*net);
      bits.insert(bits.end(), state.begin(), state.end());
    });
    return bits;
  };
  const auto expected = train(0);
  for (const int n : {2, 3}) REQUIRE(train(n) == expected);
}

TEST_CASE("shards on several devices: what cannot be is an error",
          "[data_parallel][quick][threads]") {
  run_ddp_ranks(1, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    VirtualRanksOptions options{
        .shards = 4, .devices = devices(2), .make_replica = maker<Failing>(DType::Float32)};
    must_be_refused(group, "virtual_ranks: a replica has 2 parameters, the module 6",
                    [&] { VirtualRanks(*net, group, options); });
    options.make_replica = maker<Mlp>(DType::Float32);
    options.sync_batch_norm = true;
    must_be_refused(group, "is for one device of a rank",
                    [&] { VirtualRanks(*net, group, options); });
  });
  run_ddp_ranks(1, [](ProcessGroup& group) {
    const auto net = make_net<Failing>(3, DType::Float32);
    VirtualRanks ranks(
        *net, group,
        {.shards = 4, .devices = devices(2), .make_replica = maker<Failing>(DType::Float32)});
    must_be_refused(group, "boom", [&] {
      ranks.step(8, [](const VirtualRanks::Shard& shard) {
        const Tensor sum =
            ringgrad::sum((*shard.module)(full({2, 6}, 1.0, {.device = shard.device})));
        sum.backward();
        return sum;
      });
    });
  });
}

TEST_CASE("replicas follow parameters that were dropped, added, tied or replaced",
          "[data_parallel][quick][threads]") {
  struct Net : nn::Module {
    nn::Linear in{6, 6};
    nn::Linear middle{6, 6};
    nn::Linear head{6, 3};
    Net() {
      register_module("in", in);
      register_module("middle", middle);
      register_module("head", head);
    }
    Tensor forward(const Tensor& x) override { return head(tanh(middle(tanh(in(x))))); }
  };
  const auto make = [] { return make_net<Net>(9, DType::Float64); };
  const auto net = make_net<Net>(3, DType::Float64);
  const auto alone = make_net<Net>(3, DType::Float64);
  DataParallel model(*net, make, devices(3));
  const Tensor x = samples({6}, 3, DType::Float64, 0, 7).x;
  const auto agree = [&](const char* change) {
    CAPTURE(change);
    for (const int64_t batch : {1, 7}) {
      const Tensor part = slice(x, 0, 0, batch);
      const Tensor y = model(part);
      const Tensor expected = alone->forward(part);
      REQUIRE(y.shape() == expected.shape());
      CHECK(relative_difference(to_vector<double>(y), to_vector<double>(expected)) < 1e-12);
      for (nn::Module* module :
           {static_cast<nn::Module*>(net.get()), static_cast<nn::Module*>(alone.get())})
        for (const Tensor& p : module->parameters()) p.set_grad({});
      y.square().sum().backward();
      expected.square().sum().backward();
      const auto own = net->named_parameters();
      const auto others = alone->named_parameters();
      REQUIRE(own.size() == others.size());
      for (size_t i = 0; i < own.size(); ++i) {
        CAPTURE(own[i].first);
        REQUIRE(own[i].second.grad().defined());
        CHECK(relative_difference(to_vector<double>(own[i].second.grad()),
                                  to_vector<double>(others[i].second.grad())) < 1e-12);
      }
    }
  };
  const auto both = [&](const std::function<void(Net & net)>& change) {
    manual_seed(5);
    change(*net);
    manual_seed(5);
    change(*alone);
  };
  agree("nothing");
  both([](Net& net) { net.in.bias = Tensor(); });
  agree("a bias less");
  both([](Net& net) { net.middle.weight = net.in.weight; });
  agree("tied");
  both([](Net& net) {
    net.head.weight = randn({5, 6}, {DType::Float64});
    net.head.bias = ones({5}, {DType::Float64});
  });
  agree("a new head");
  both([](Net& net) { net.in.bias = full({6}, 0.5, {DType::Float64}); });
  agree("a bias more");
  both([](Net& net) { net.middle.weight = randn({6, 6}, {DType::Float64}); });
  agree("untied");
}

TEST_CASE("a layer that replicas lack is named, unless make_replica makes it by now",
          "[data_parallel][quick][threads]") {
  const auto net = std::make_shared<nn::Sequential>(nn::Linear(4, 4), nn::Tanh());
  bool knows = false;
  DataParallel model(
      *net,
      [&] {
        const auto made = std::make_shared<nn::Sequential>(nn::Linear(4, 4), nn::Tanh());
        if (knows) made->push_back(nn::Linear(4, 2));
        return made;
      },
      devices(2));
  net->push_back(nn::Linear(4, 2));
  for (const int64_t batch : {1, 6})
    require_error<Error>("the module has a layer '2' (Linear) that replicas lack", [&] {
      model(ones({batch, 4}));
    });
  knows = true;
  for (const int64_t batch : {1, 6})
    CHECK(relative_difference(to_vector<double>(model(ones({batch, 4}))),
                              to_vector<double>((*net)(ones({batch, 4})))) < 1e-6);
}

TEST_CASE("hooks, plain members and normalizations act alike for a batch of 1 and of 6",
          "[data_parallel][quick][threads]") {
  struct Net : nn::Module {
    nn::BatchNorm2d bn{1};
    double scale = 1;
    Net() { register_module("bn", bn); }
    Tensor forward(const Tensor& x) override { return bn(x) * scale; }
    void follow_members(const Module& source) override {
      scale = static_cast<const Net&>(source).scale;
    }
  };
  Net net;
  DataParallel model(
      net, [] { return std::make_shared<Net>(); }, devices(3));
  const Tensor six = reshape(arange(0.0, 24.0), {6, 1, 2, 2});
  const auto check = [&](double expected) {  // expects 3 for the first element
    for (const int64_t batch : {1, 6})
      CHECK(std::abs(select(flatten(model(slice(six, 0, 0, batch))), 0, 3).item<double>() -
                     expected) < 1e-3);
  };
  net.eval();
  check(3);
  net.scale = 2;
  check(6);
  net.bn.set_normalization([](const Tensor& x, auto&&...) { return x * 10; });
  check(60);
  std::atomic<int> calls = 0;
  HookHandle of_child =
      net.bn.register_forward_hook([&](nn::Module&, const Tensor&, const Tensor& y) {
        ++calls;
        return y + 1;
      });
  const HookHandle of_all =
      net.register_forward_hook([](nn::Module&, const Tensor&, const Tensor& y) { return y + 7; });
  check(69);
  CHECK(calls == 1 + 3);  // in each replica
  of_child.remove();
  check(67);
}
