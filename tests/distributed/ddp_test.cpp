// DistributedDataParallel computes what one rank would. The same global batches give the same
// parameters, for any number of ranks, any buckets, any transport, and any sizes of the ranks'
// parts.
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"

namespace ringgrad::test::ddp_test {

namespace {

// An epoch's batches: the last one does not divide by 2, 3 or 4.
const std::vector<int64_t> kBatches = {12, 12, 12, 7};

// Returns the result of 20 steps of one rank without any wrapper: the reference.
template <class Net>
std::vector<double> train_alone(DType dtype, const Shape& sample, int64_t classes) {
  const auto net = make_net<Net>(3, dtype);
  optim::SGD optimizer(net->named_parameters(),
                       {.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3});
  for (int64_t step = 0, begin = 0; step < 20; ++step) {
    const int64_t end = begin + kBatches[step % 4];
    const auto [x, target] = samples(sample, classes, dtype, begin, end);
    optimizer.zero_grad();
    cross_entropy((*net)(x), target).backward();
    optimizer.step();
    begin = end;
  }
  return flat_values(*net);
}

template <class Net>
std::vector<double> train_ranks(int ranks, DType dtype, const Shape& sample, int64_t classes,
                                const DistributedDataParallelOptions& options,
                                const char* channel = "shm") {
  std::vector<double> result;
  run_ddp_ranks(
      ranks,
      [&](ProcessGroup& group) {
        const auto net = make_net<Net>(3 + group.rank(), dtype);  // rank 0's weights must win
        DistributedDataParallel ddp(*net, group, options);
        optim::SGD optimizer(ddp.named_parameters(),
                             {.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3});
        for (int64_t step = 0, begin = 0; step < 20; ++step) {
          const int64_t end = begin + kBatches[step % 4];
          const auto [x, target] =
              samples(sample, classes, dtype, begin, end, group.rank(), group.size());
          optimizer.zero_grad();
          cross_entropy(ddp(x), target).backward();
          optimizer.step();
          begin = end;
        }
        ddp.check_identical();  // bit for bit
        if (group.is_main_process()) result = flat_values(ddp);
      },
      channel);
  return result;
}

}  // namespace

TEST_CASE("20 steps on several ranks are 20 steps on one", "[ddp][quick][threads]") {
  const DType dtype = GENERATE(DType::Float32, DType::Float64);
  const auto alone = train_alone<Mlp>(dtype, {6}, 3);
  for (const int ranks : {1, 2, 3, 4})
    CHECK(relative_difference(train_ranks<Mlp>(ranks, dtype, {6}, 3, {}), alone) <
          training_tolerance(dtype));
  CHECK(relative_difference(train_ranks<Mlp>(2, dtype, {6}, 3, {}, "tcp"), alone) <
        training_tolerance(dtype));
  CHECK(relative_difference(train_ranks<Mlp>(3, dtype, {6}, 3, {.overlap = false}), alone) <
        training_tolerance(dtype));
}

TEST_CASE("buckets that split a tensor change nothing", "[ddp][quick][threads]") {
  const auto alone = train_alone<Mlp>(DType::Float64, {6}, 3);
  const int64_t bytes = GENERATE(1, 200, 1000);  // 200: less than the middle layer's weight
  CHECK(relative_difference(train_ranks<Mlp>(3, DType::Float64, {6}, 3, {.caps = {bytes, bytes}}),
                            alone) < 1e-12);
}

TEST_CASE("a convolutional network on several ranks", "[ddp]") {
  const DType dtype = GENERATE(DType::Float32, DType::Float64);
  const auto alone = train_alone<SmallCnn>(dtype, {1, 8, 8}, 10);
  for (const int ranks : {2, 3, 4})
    CHECK(relative_difference(train_ranks<SmallCnn>(ranks, dtype, {1, 8, 8}, 10, {}), alone) <
          training_tolerance(dtype));
}

TEST_CASE("more ranks than samples: a rank without data shadows the others",
          "[ddp][quick][threads]") {
  // Rank r has batches in the first 3 + r steps only.
  const int ranks = GENERATE(2, 3);
  std::vector<double> result;
  run_ddp_ranks(ranks, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    DistributedDataParallel ddp(*net, group);
    optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1, .momentum = 0.9});
    for (int64_t step = 0; step < 3 + group.rank(); ++step) {
      const auto [x, target] =
          samples({6}, 3, DType::Float64, 4 * step, 4 * step + 4, group.rank(), group.size());
      optimizer.zero_grad();
      cross_entropy(ddp(x), target).backward();
      optimizer.step();
    }
    while (ddp.shadow_step()) optimizer.step();
    ddp.check_identical();
    if (group.is_main_process()) result = flat_values(*net);
  });

  const auto net = make_net<Mlp>(3, DType::Float64);
  optim::SGD optimizer(net->named_parameters(), {.lr = 0.1, .momentum = 0.9});
  for (int64_t step = 0; step < 3 + ranks - 1; ++step) {
    std::vector<Tensor> xs;
    std::vector<Tensor> targets;
    for (int r = 0; r < ranks; ++r)
      if (step < 3 + r) {
        const auto [x, target] = samples({6}, 3, DType::Float64, 4 * step, 4 * step + 4, r, ranks);
        xs.push_back(x);
        targets.push_back(target);
      }
    optimizer.zero_grad();
    cross_entropy((*net)(cat(xs)), cat(targets)).backward();
    optimizer.step();
  }
  CHECK(relative_difference(result, flat_values(*net)) < 1e-12);
}

TEST_CASE("no_sync accumulates, and the next backward averages the sum", "[ddp][quick][threads]") {
  std::vector<double> result;
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    DistributedDataParallel ddp(*net, group);
    optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
    const auto backward = [&](int64_t begin) {
      const auto [x, target] = samples({6}, 3, DType::Float64, begin, begin + 4, group.rank(), 2);
      cross_entropy(ddp(x), target).backward();
    };
    for (int64_t step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      {
        const auto guard = ddp.no_sync();
        const int64_t before = ddp.totals().steps;
        backward(12 * step);
        backward(12 * step + 4);
        must(ddp.totals().steps == before, "no_sync must not communicate");
      }
      backward(12 * step + 8);
      optimizer.step();
    }
    ddp.check_identical();
    if (group.is_main_process()) result = flat_values(*net);
  });

  const auto net = make_net<Mlp>(3, DType::Float64);
  optim::SGD optimizer(net->named_parameters(), {.lr = 0.1});
  for (int64_t step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    for (int64_t k = 0; k < 3; ++k) {
      const auto [x, target] =
          samples({6}, 3, DType::Float64, 12 * step + 4 * k, 12 * step + 4 * k + 4);
      cross_entropy((*net)(x), target).backward();
    }
    optimizer.step();
  }
  CHECK(relative_difference(result, flat_values(*net)) < 1e-12);
}

TEST_CASE("parameters that take no part in the loss need no flag", "[ddp][quick][threads]") {
  struct Heads : nn::Module {
    nn::Linear body{6, 8};
    nn::Linear used{8, 3};
    nn::Linear unused{8, 3};
    bool second = false;
    Heads() {
      register_module("body", body);
      register_module("used", used);
      register_module("unused", unused);
    }
    Tensor forward(const Tensor& x) override { return second ? unused(body(x)) : used(body(x)); }
  };
  run_ddp_ranks(3, [](ProcessGroup& group) {
    const auto net = make_net<Heads>(3, DType::Float64);
    DistributedDataParallel ddp(*net, group, {.caps = {128, 128}});
    const auto [x, target] = samples({6}, 3, DType::Float64, 0, 12, group.rank(), group.size());
    for (int step = 0; step < 4; ++step) {
      ddp.zero_grad();
      // At first no rank uses the head, then one does.
      net->second = step >= 2 && group.rank() == 0;
      cross_entropy(ddp(x), target).backward();
      const auto grad = to_vector<double>(net->unused.weight.grad());
      const bool zero = std::all_of(grad.begin(), grad.end(), [](double g) { return g == 0; });
      must(zero == (step < 2), "the unused head has a gradient only where some rank used it");
      const Tensor mine = net->unused.weight.grad().detach();
      const Tensor sum = zeros_like(mine);
      copy_(sum, mine);
      group.all_reduce(sum, ReduceOp::Max).wait();
      must(to_vector<double>(sum) == grad, "gradients must be the same on all ranks");
    }
  });
}

TEST_CASE("compressed gradients are the same on all ranks, and close", "[ddp][quick][threads]") {
  const auto exact = train_ranks<Mlp>(2, DType::Float32, {6}, 3, {});
  const auto bf16 =
      train_ranks<Mlp>(2, DType::Float32, {6}, 3, {.comm_hook = bf16_compress_hook()});
  const auto fp16 =
      train_ranks<Mlp>(2, DType::Float32, {6}, 3, {.comm_hook = fp16_compress_hook()});
  CHECK(relative_difference(bf16, exact) < 10 * 0x1p-8);
  CHECK(relative_difference(fp16, exact) < 10 * 0x1p-11);
  CHECK(bf16 != exact);
}

TEST_CASE("a user's communication hook sees every bucket once a step, in order",
          "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    std::vector<int> seen;
    std::vector<int> last;
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group,
                                {.caps = {256, 256}, .comm_hook = [&](const GradBucket& bucket) {
                                   seen.push_back(bucket.index);
                                   if (bucket.is_last) last.push_back(bucket.index);
                                   return then(bucket.average(bucket.flat),
                                               [flat = bucket.flat] { fill_(flat, 42); });
                                 }});
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, 8, group.rank(), 2);
    cross_entropy(ddp(x), target).backward();
    for (size_t i = 0; i < seen.size(); ++i) must(seen[i] == static_cast<int>(i), "order");
    must(seen.size() > 2 && last == std::vector{seen.back()},
         "several buckets, one of them the last");
    must(to_vector<float>(net->first.bias.grad())[0] == 42,
         "what the hook made of it is the gradient");
    ddp.register_comm_hook({});
    ddp.zero_grad();
    cross_entropy(ddp(x), target).backward();
    const auto plain = to_vector<double>(net->first.bias.grad());
    must(plain[0] != 42, "without it gradients are averaged");
    ddp.register_comm_hook(bf16_compress_hook());
    ddp.zero_grad();
    cross_entropy(ddp(x), target).backward();
    const auto compressed = to_vector<double>(net->first.bias.grad());
    must(compressed != plain && relative_difference(compressed, plain) < 0x1p-6,
         "by the hook that was registered");
  });
}

TEST_CASE("a GAN's two wrapped networks, trained in turn and in one graph",
          "[ddp][quick][threads]") {
  struct Net : nn::Module {
    nn::Linear fc{6, 6};
    Net() { register_module("fc", fc); }
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  std::vector<double> results[2];
  const auto train = [&](int ranks) {
    run_ddp_ranks(ranks, [&](ProcessGroup& group) {
      const auto generator = make_net<Net>(3, DType::Float64);
      const auto critic = make_net<Net>(4, DType::Float64);
      DistributedDataParallel g(*generator, group);
      DistributedDataParallel d(*critic, group);
      optim::SGD g_step(g.named_parameters(), {.lr = 0.05});
      optim::SGD d_step(d.named_parameters(), {.lr = 0.05});
      for (int64_t step = 0; step < 6; ++step) {
        const Tensor x =
            samples({6}, 3, DType::Float64, 8 * step, 8 * step + 8, group.rank(), group.size()).x;
        d_step.zero_grad();
        (mean(d(x)) - mean(d(g(x).detach()))).backward();  // the critic sees two batches
        d_step.step();
        g_step.zero_grad();
        mean(d(g(x)) * d(g(x))).backward();  // both wrappers in one graph
        g_step.step();
      }
      g.check_identical();
      d.check_identical();
      if (group.is_main_process()) {
        results[ranks - 1] = flat_values(*generator);
        const auto more = flat_values(*critic);
        results[ranks - 1].insert(results[ranks - 1].end(), more.begin(), more.end());
      }
    });
  };
  train(1);
  train(2);
  CHECK(relative_difference(results[1], results[0]) < 1e-12);
}

TEST_CASE("a dropped gradient comes back into the arena", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    DistributedDataParallel ddp(*net, group);
    const auto [x, target] = samples({6}, 3, DType::Float64, 0, 8, group.rank(), 2);
    cross_entropy(ddp(x), target).backward();
    const auto first = to_vector<double>(net->middle.weight.grad());
    for (const Tensor& parameter : ddp.parameters()) parameter.set_grad({});
    cross_entropy(ddp(x), target).backward();
    must(to_vector<double>(net->middle.weight.grad()) == first, "the same gradient again");
  });
}

TEST_CASE("a dropped gradient comes back where only other ranks reach the parameter",
          "[ddp][quick][threads]") {
  struct Branch : nn::Module {
    nn::Linear body{6, 8};
    nn::Linear often{8, 3};
    nn::Linear rarely{8, 3};
    bool rare = false;
    Branch() {
      register_module("body", body);
      register_module("often", often);
      register_module("rarely", rarely);
    }
    Tensor forward(const Tensor& x) override { return rare ? rarely(body(x)) : often(body(x)); }
  };
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Branch>(3, DType::Float64);
    const auto alone = make_net<Branch>(3, DType::Float64);
    DistributedDataParallel ddp(*net, group);
    net->rare = alone->rare = group.rank() == 0;
    const auto [x, target] = samples({6}, 3, DType::Float64, 0, 8, group.rank(), 2);
    cross_entropy((*alone)(x), target).backward();
    const auto head = [&](Branch& branch) {
      return to_vector<double>((branch.rare ? branch.rarely : branch.often).weight.grad());
    };
    auto half = head(*alone);  // the other rank's part is zero
    for (double& g : half) g /= 2;
    for (int step = 0; step < 3; ++step) {
      for (const Tensor& parameter : ddp.parameters()) parameter.set_grad({});
      cross_entropy(ddp(x), target).backward();
      must(net->rarely.weight.grad().defined() && net->often.weight.grad().defined(),
           "every gradient is there");
      must(relative_difference(head(*net), half) < 1e-12,
           "the average of one rank's gradient and nothing");
    }
  });
}

TEST_CASE("parameters of two dtypes travel in buckets of their own", "[ddp][quick][threads]") {
  struct Mixed : nn::Module {
    nn::Linear wide{6, 16};
    nn::Linear narrow{16, 16};
    nn::Linear last{16, 3};
    Mixed() {
      register_module("wide", wide);
      register_module("narrow", narrow);
      register_module("last", last);
      narrow.to(DType::BFloat16);
    }
    Tensor forward(const Tensor& x) override {
      return last(
          ringgrad::to(relu(narrow(ringgrad::to(relu(wide(x)), DType::BFloat16))), DType::Float32));
    }
  };
  static std::mutex mutex;  // initialisation draws from one generator per process
  const auto make = [] {
    std::lock_guard lock(mutex);
    manual_seed(3);
    return std::make_unique<Mixed>();
  };
  const auto alone = make();
  const auto [x, target] = samples({6}, 3, DType::Float32, 0, 9);
  cross_entropy((*alone)(x), target).backward();
  run_ddp_ranks(3, [&](ProcessGroup& group) {
    const auto net = make();
    DistributedDataParallel ddp(*net, group, {.caps = {300, 300}});
    for (int step = 0; step < 2; ++step) {  // as planned, and as observed
      ddp.zero_grad();
      const auto [own, own_target] = samples({6}, 3, DType::Float32, 0, 9, group.rank(), 3);
      cross_entropy(ddp(own), own_target).backward();
      must(relative_difference(gradients(*net), gradients(*alone)) < 0x1p-7,
           "the gradient, to bfloat16's precision");
    }
    optim::SGD(ddp.named_parameters(), {.lr = 0.1}).step();
    ddp.check_identical();
  });
}

TEST_CASE("each of two backwards averages what it adds", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    const auto alone = make_net<Mlp>(3, DType::Float64);
    DistributedDataParallel ddp(*net, group);
    const auto loss = [](nn::Module& model, int64_t begin, int rank, int ranks) {
      const auto [x, target] = samples({6}, 3, DType::Float64, begin, begin + 8, rank, ranks);
      return cross_entropy(model(x), target);
    };
    const Tensor first = loss(ddp, 0, group.rank(), 2);
    const Tensor second = loss(ddp, 8, group.rank(), 2);
    first.backward();
    second.backward();
    loss(*alone, 0, 0, 1).backward();
    loss(*alone, 8, 0, 1).backward();
    must(relative_difference(to_vector<double>(net->first.weight.grad()),
                             to_vector<double>(alone->first.weight.grad())) < 1e-12,
         "the sum of two averaged gradients");
  });
}

TEST_CASE("a module whose wrapper is gone trains alone", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    Tensor loss;
    {
      DistributedDataParallel ddp(*net, group);
      const auto [x, target] = samples({6}, 3, DType::Float64, 0, 8, group.rank(), 2);
      loss = cross_entropy(ddp(x), target);
    }
    bool refused = false;
    try {
      loss.backward();
    } catch (const Error& error) {
      refused = std::string(error.what())
                    .find("the wrapper was destroyed between forward and backward") == 27;
    }
    must(refused, "gradients that nobody averages are an error");
    net->zero_grad();
    mean((*net)(zeros({2, 6}, {.dtype = DType::Float64}))).backward();
    must(net->first.weight.grad().defined(), "gradients stay where they are");
  });
}

}  // namespace ringgrad::test::ddp_test
