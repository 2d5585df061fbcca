// Shards: the same bits on any number of ranks.
#include "ringgrad/distributed/virtual_ranks.h"

#include <bit>
#include <set>

#include "ringgrad/autograd/autocast.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::virtual_ranks_test {

namespace {

// Everything whose bits could depend on who computes what: batch norm, dropout, a layer that is
// used twice.
struct Net : nn::Module {
  nn::Conv2d conv{1, 4, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm2d bn1{4};
  nn::BatchNorm2d bn2{4};
  nn::Dropout dropout{0.25};
  nn::Linear fc{4 * 2 * 2, 10};
  Net() {
    register_module("conv", conv);
    register_module("bn1", bn1);
    register_module("bn2", bn2);
    register_module("dropout", dropout);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = bn2(bn1(conv(x), {.activation = Activation::Relu}));
    return fc(dropout(flatten(max_pool2d(h, {.kernel = 2}), 1)));
  }
};

Tensor rows(const Tensor& x, int64_t begin, int64_t end) {
  return contiguous(slice(x, 0, begin, end));
}

// This rank's rows of the global batch of samples [begin, end).
Samples own_samples(const VirtualRanks& ranks, const Shape& shape, int64_t classes, DType dtype,
                    int64_t begin, int64_t end) {
  const auto [x, target] = samples(shape, classes, dtype, begin, end);
  const RowRange own = ranks.own_rows(end - begin);
  return {rows(x, own.begin, own.end), rows(target, own.begin, own.end)};
}

Tensor sum_of_losses(nn::Module& net, const Samples& own, const VirtualRanks::Shard& shard) {
  const Tensor y = net(rows(own.x, shard.begin, shard.end));
  const Tensor sum =
      cross_entropy(y, rows(own.target, shard.begin, shard.end), {.reduction = Reduction::Sum});
  sum.backward();
  return sum;
}

// Weights, buffers and losses, bit for bit, after global batches of 16 and 13 samples, and without
// batch norm over all shards 3.
std::vector<uint64_t> train_bits(ProcessGroup& group, int shards, bool sync, int64_t bucket_bytes) {
  const auto net = make_net<Net>(3, DType::Float32);
  VirtualRanks ranks(*net, group,
                     {.shards = shards,
                      .seed = 11,
                      .sync_batch_norm = sync,
                      .caps = {.first_bytes = bucket_bytes, .bytes = bucket_bytes}});
  optim::SGD optimizer(net->named_parameters(), {.lr = 0.05, .momentum = 0.9});
  std::vector<double> values;
  int64_t begin = 0;
  for (const int64_t batch : {16, 13, sync ? 9 : 3}) {
    const Samples own = own_samples(ranks, {1, 4, 4}, 10, DType::Float32, begin, begin + batch);
    values.push_back(ranks.step(
        batch, [&](const VirtualRanks::Shard& shard) { return sum_of_losses(*net, own, shard); }));
    optimizer.step();
    begin += batch;
  }
  ranks.check_identical();
  const auto state = flat_values(*net);
  values.insert(values.end(), state.begin(), state.end());
  std::vector<uint64_t> bits;
  for (const double value : values) bits.push_back(std::bit_cast<uint64_t>(value));
  return bits;
}

}  // namespace

TEST_CASE("weights, buffers and losses have the same bits on any number of ranks",
          "[virtual_ranks][quick][threads]") {
  const int shards = GENERATE(5, 8);
  const bool sync = GENERATE(false, true);
  std::vector<uint64_t> expected;  // those of one rank for each shard
  for (int n = shards; n >= 1; --n)
    run_ddp_ranks(
        n,
        [&](ProcessGroup& group) {
          const auto bits = train_bits(group, shards, sync, n % 2 == 0 ? 100 : 25 << 20);
          if (n == shards && group.is_main_process()) expected = bits;
          if (n < shards) must(bits == expected, str("the bits of ", shards, " ranks on ", n));
        },
        n % 3 == 0 ? "tcp" : "shm");
}

TEST_CASE("a shard more is another sum", "[virtual_ranks][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    must(train_bits(group, 4, false, 1 << 20) != train_bits(group, 5, false, 1 << 20),
         "other bits");
  });
}

TEST_CASE("gradients and loss are those of the mean over the global batch",
          "[virtual_ranks][quick][threads]") {
  const auto alone = make_net<Mlp>(3, DType::Float64);
  const auto [x, target] = samples({6}, 3, DType::Float64, 0, 17);
  const Tensor mean = cross_entropy((*alone)(x), target);
  mean.backward();
  for (const int n : {1, 2, 3})
    run_ddp_ranks(n, [&](ProcessGroup& group) {
      const auto net = make_net<Mlp>(group.is_main_process() ? 3 : 4, DType::Float64);
      VirtualRanks ranks(*net, group, {.shards = 5});
      const Samples own = own_samples(ranks, {6}, 3, DType::Float64, 0, 17);
      for (int step = 0; step < 2; ++step) {  // what a gradient was before does not matter
        const double loss = ranks.step(
            17, [&](const VirtualRanks::Shard& shard) { return sum_of_losses(*net, own, shard); });
        must(std::abs(loss - mean.item<double>()) < 1e-13, "the mean loss");
        must(relative_difference(gradients(*net), gradients(*alone)) < 1e-13,
             "the mean's gradient");
      }
    });
}

TEST_CASE("batch norm over all shards sees the whole batch", "[virtual_ranks][quick][threads]") {
  const auto alone = make_net<Net>(3, DType::Float64);
  alone->dropout.eval();
  const auto [x, target] = samples({1, 4, 4}, 10, DType::Float64, 0, 14);
  cross_entropy((*alone)(x), target).backward();
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    const auto net = make_net<Net>(3, DType::Float64);
    net->dropout.eval();
    VirtualRanks ranks(*net, group, {.shards = 5, .sync_batch_norm = true});
    const Samples own = own_samples(ranks, {1, 4, 4}, 10, DType::Float64, 0, 14);
    ranks.step(14,
               [&](const VirtualRanks::Shard& shard) { return sum_of_losses(*net, own, shard); });
    must(relative_difference(gradients(*net), gradients(*alone)) < 1e-12,
         "the whole batch's gradient");
    must(relative_difference(flat_values(*net), flat_values(*alone)) < 1e-12,
         "the whole batch's statistics");
  });
}

TEST_CASE("running statistics are the shards' mean, weighted by samples",
          "[virtual_ranks][quick]") {
  run_ddp_ranks(1, [](ProcessGroup& group) {
    struct Norm : nn::Module {
      nn::BatchNorm1d bn{1};
      Norm() { register_module("bn", bn); }
      Tensor forward(const Tensor& x) override { return bn(x); }
    } net;
    VirtualRanks ranks(net, group, {.shards = 2});
    const Tensor x = tensor<float>({0, 2, 4, 10, 20}, {5, 1});
    ranks.step(5, [&](const VirtualRanks::Shard& shard) {
      const Tensor sum = ringgrad::sum(net(rows(x, shard.begin, shard.end)));
      sum.backward();
      return sum;
    });
    must(std::abs(net.bn.running_mean.item<float>() - 0.1f * (3 * 2 + 2 * 15) / 5) < 1e-6f,
         "the mean of means");
    must(net.bn.num_batches_tracked.item<int64_t>() == 1, "one batch");
  });
}

TEST_CASE("random numbers are named by seed, step and shard, and nobody else's",
          "[virtual_ranks][quick]") {
  run_ddp_ranks(1, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    VirtualRanks ranks(*net, group, {.shards = 2, .seed = 5});
    const auto before = to_vector<int64_t>(default_generator().state());
    const auto drawn = [&](int64_t step) {
      std::vector<double> values;
      ranks.set_step(step);
      ranks.step(2, [&](const VirtualRanks::Shard&) {
        for (const double value : to_vector<double>(rand({4}))) values.push_back(value);
        const Tensor sum = ringgrad::sum((*net)(full({1, 6}, 1.0, {.dtype = DType::Float64})));
        sum.backward();
        return sum;
      });
      return values;
    };
    const auto first = drawn(0);
    const auto second = drawn(1);
    must(first.size() == 8 && std::set<double>(first.begin(), first.end()).size() == 8,
         "shards differ");
    must(first != second && drawn(0) == first && drawn(1) == second,
         "steps differ, and may come again");
    must(to_vector<int64_t>(default_generator().state()) == before,
         "the generator outside is left alone");
  });
}

TEST_CASE("a parameter that some shards do not use, or none", "[virtual_ranks][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    VirtualRanks ranks(*net, group, {.shards = 3});
    const Samples own = own_samples(ranks, {6}, 3, DType::Float64, 0, 6);
    ranks.step(6, [&](const VirtualRanks::Shard& shard) {
      const Tensor h = net->first(rows(own.x, shard.begin, shard.end));
      const Tensor sum = ringgrad::sum(shard.index == 1 ? net->middle(h) : h);
      sum.backward();
      return sum;
    });
    must(to_vector<double>(net->middle.bias.grad()) == std::vector<double>(16, 2.0 / 6),
         "two of six samples");
    must(to_vector<double>(net->last.bias.grad()) == std::vector<double>(3, 0.0),
         "nobody's gradient is zero");
  });
}

// A shard that uses the layer has its gradients before those of the statistics are exchanged. The
// others have them only at the end.
TEST_CASE("batch norm over all shards before a layer that some shards do not use",
          "[virtual_ranks][quick][threads]") {
  struct Optional : nn::Module {
    nn::Linear first{6, 16};
    nn::Linear middle{16, 16};
    nn::BatchNorm1d bn{16};
    Optional() {
      register_module("first", first);
      register_module("bn", bn);
      register_module("middle", middle);
    }
  };
  run_ddp_ranks(3, [](ProcessGroup& group) {
    const auto net = make_net<Optional>(3, DType::Float64);
    VirtualRanks ranks(
        *net, group,
        {.shards = 3, .sync_batch_norm = true, .caps = {.first_bytes = 100, .bytes = 100}});
    const Samples own = own_samples(ranks, {6}, 3, DType::Float64, 0, 6);
    ranks.step(6, [&](const VirtualRanks::Shard& shard) {
      const Tensor h = net->bn(net->first(rows(own.x, shard.begin, shard.end)));
      const Tensor sum = ringgrad::sum(shard.index == 1 ? net->middle(h) : h);
      sum.backward();
      return sum;
    });
    must(to_vector<double>(net->middle.bias.grad()) == std::vector<double>(16, 2.0 / 6),
         "two of six samples");
  });
}

TEST_CASE("shards compute in 16 bits where the caller does", "[virtual_ranks][quick][threads]") {
  std::vector<uint64_t> expected;
  for (const int n : {3, 1})
    run_ddp_ranks(n, [&](ProcessGroup& group) {
      const AutocastGuard autocast;
      const auto bits = train_bits(group, 3, true, 25 << 20);
      if (n == 3 && group.is_main_process()) expected = bits;
      if (n == 1) must(bits == expected, "the bits of three ranks on one");
    });
  run_ddp_ranks(1, [&](ProcessGroup& group) {
    must(train_bits(group, 3, true, 25 << 20) != expected, "other bits without");
  });
}

TEST_CASE("what a step has put into a gradient is added to by a backward after it",
          "[virtual_ranks][quick]") {
  run_ddp_ranks(1, [](ProcessGroup& group) {
    const auto net = make_net<Net>(3, DType::Float64);
    net->eval();
    VirtualRanks ranks(*net, group, {.shards = 2});
    optim::SGD optimizer(net->named_parameters(), {.lr = 0.05});
    const Samples own = own_samples(ranks, {1, 4, 4}, 10, DType::Float64, 0, 8);
    const auto loss_of = [&](const VirtualRanks::Shard& shard) {
      return sum_of_losses(*net, own, shard);
    };
    ranks.step(8, loss_of);
    const auto once = gradients(*net);
    optimizer.zero_grad();
    ranks.step(8, loss_of);
    (cross_entropy((*net)(own.x), own.target)).backward();
    auto twice = once;
    for (double& value : twice) value *= 2;
    must(relative_difference(gradients(*net), twice) < 1e-12, "the gradient twice");
  });
}

// One shard's pass stands still at the layer's second use while the next one's begins, on the same
// leaves.
TEST_CASE("batch norm over all shards that is used twice", "[virtual_ranks][quick][threads]") {
  struct Twice : nn::Module {
    nn::BatchNorm1d bn{6};
    Twice() { register_module("bn", bn); }
    Tensor forward(const Tensor& x) override { return bn(bn(x) * bn(x + 1.0)); }
  };
  const auto loss_of = [](nn::Module& net, const Tensor& x) { return sum(net(x) * x); };
  Twice alone;
  alone.to(DType::Float64);
  const Tensor x = samples({6}, 3, DType::Float64, 0, 8).x;
  (loss_of(alone, x) / 8.0).backward();
  for (const int n : {1, 2})
    run_ddp_ranks(n, [&](ProcessGroup& group) {
      Twice net;
      net.to(DType::Float64);
      VirtualRanks ranks(net, group, {.shards = 4, .sync_batch_norm = true});
      const RowRange own = ranks.own_rows(8);
      ranks.step(8, [&](const VirtualRanks::Shard& shard) {
        const Tensor sum = loss_of(net, rows(x, own.begin + shard.begin, own.begin + shard.end));
        sum.backward();
        return sum;
      });
      must(relative_difference(gradients(net), gradients(alone)) < 1e-12,
           "the whole batch's gradient");
    });
}

TEST_CASE("what cannot be is an error, and the group lives on", "[virtual_ranks][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    must_be_refused(group, "--shards 1 for 2 ranks",
                    [&] { VirtualRanks(*net, group, {.shards = 1}); });
  });
  for (const std::string& error : errors_of_ranks(host_groups(2), [](ProcessGroup& group) {
         const auto net = make_net<Mlp>(3, DType::Float64);
         VirtualRanks(*net, group, {.shards = 2 + group.rank()});
       }))
    CHECK(error.find("--shards 3 there, --shards 2 on rank 0") != std::string::npos);
  run_ddp_ranks(1, [](ProcessGroup& group) {
    const auto mlp = make_net<Mlp>(3, DType::Float64);
    VirtualRanks alone(*mlp, group, {.shards = 4});
    must_be_refused(group, "every rank has all gradients", [&] { (void)alone.step_share(); });
    const auto frozen = make_net<Mlp>(3, DType::Float64);
    for (const Tensor& parameter : frozen->parameters()) parameter.requires_grad_(false);
    must_be_refused(group, "no parameter that requires a gradient",
                    [&] { VirtualRanks(*frozen, group, {.shards = 1}); });
    const Samples words = own_samples(alone, {6}, 3, DType::Float64, 0, 8);
    must_be_refused(group, "two gradients of shard 1", [&] {
      alone.step(8, [&](const VirtualRanks::Shard& shard) {
        if (shard.index == 1) sum_of_losses(*mlp, words, shard);
        return sum_of_losses(*mlp, words, shard);
      });
    });
    const auto net = make_net<Net>(3, DType::Float32);
    VirtualRanks ranks(*net, group, {.shards = 4, .sync_batch_norm = true});
    const Samples own = own_samples(ranks, {1, 4, 4}, 10, DType::Float32, 0, 8);
    const auto before = flat_values(*net);
    const auto step = [&](auto body) { return [&ranks, body] { ranks.step(8, body); }; };
    must_be_refused(group, "shard 2 is ill", step([&](const VirtualRanks::Shard& shard) {
                      if (shard.index == 2) throw Error("shard 2 is ill");
                      return sum_of_losses(*net, own, shard);
                    }));
    must_be_refused(group, "all shards must come by the same layers",
                    step([&](const VirtualRanks::Shard& shard) {
                      if (shard.index > 0) return sum_of_losses(*net, own, shard);
                      const Tensor loss = full({}, 0.0);
                      return loss;
                    }));
    must_be_refused(group, "needs a sample in each", [&] { ranks.step(3, {}); });
    must_be_refused(group, "a batch of 0 samples", [&] { ranks.step(0, {}); });
    must_be_refused(group, "NoGradGuard", [&] {
      const NoGradGuard guard;
      ranks.step(8, {});
    });
    must(flat_values(*net) == before, "a step that fails changes nothing");
    ranks.step(8,
               [&](const VirtualRanks::Shard& shard) { return sum_of_losses(*net, own, shard); });
  });
}

TEST_CASE("a shard that throws on one rank throws on all, and the group lives on",
          "[virtual_ranks][quick][threads]") {
  const int zero = GENERATE(0, 2);
  const bool after_backward = GENERATE(false, true);
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    const auto net = make_net<Net>(3, DType::Float32);
    const auto alone = make_net<Net>(3, DType::Float32);
    VirtualRanks ranks(*net, group, {.shards = 4, .zero = zero});
    VirtualRanks undisturbed(*alone, group, {.shards = 4, .zero = zero});
    const Samples own = own_samples(ranks, {1, 4, 4}, 10, DType::Float32, 0, 8);
    const auto before = flat_values(*net);
    std::string error;
    try {
      ranks.step(8, [&](const VirtualRanks::Shard& shard) {
        if (shard.index == 3 && !after_backward) throw Error("shard 3 is ill");
        const Tensor loss = sum_of_losses(*net, own, shard);
        if (shard.index == 3) throw Error("shard 3 is ill");
        return loss;
      });
    } catch (const Error& e) {
      error = e.what();
    }
    must(error == (group.rank() == 1 ? "shard 3 is ill"
                                     : "virtual_ranks: a shard of step 0 has thrown on rank 1: "
                                       "shard 3 is ill; all ranks leave the step out"),
         error);
    must(flat_values(*net) == before, "buffers are what they were");
    const auto loss_of = [&](VirtualRanks& wrapper, Net& module) {
      return wrapper.step(
          8, [&](const VirtualRanks::Shard& shard) { return sum_of_losses(module, own, shard); });
    };
    must(loss_of(ranks, *net) == loss_of(undisturbed, *alone), "the same step, bit for bit");
    must(flat_values(*net) == flat_values(*alone), "and the same buffers");
    ranks.check_identical();
  });
}

TEST_CASE("a gradient that is not finite names parameter and rank",
          "[virtual_ranks][quick][threads]") {
  const auto errors = errors_of_ranks(host_groups(2), [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    VirtualRanks ranks(*net, group, {.shards = 4});
    const Samples own = own_samples(ranks, {6}, 3, DType::Float64, 0, 8);
    ranks.step(8, [&](const VirtualRanks::Shard& shard) {
      const Tensor sum =
          cross_entropy((*net)(rows(own.x, shard.begin, shard.end)),
                        rows(own.target, shard.begin, shard.end), {.reduction = Reduction::Sum}) *
          (shard.index == 3 ? INFINITY : 1.0);
      sum.backward();
      return sum;
    });
  });
  for (const std::string& error : errors) {
    CHECK(error.find("last.") != std::string::npos);
    CHECK(error.find("rank 1") != std::string::npos);
  }
}

// The bits do not depend on the number of ranks and shards, because the buffers do not pass through
// a weighted sum.
TEST_CASE("buffers that no shard writes to keep every bit", "[virtual_ranks][quick][threads]") {
  struct Held : nn::Module {
    nn::Linear fc{6, 3};
    Tensor whole = tensor<int64_t>({INT64_MAX, INT64_MIN, 9007199254740993, -1});
    Tensor real = tensor<double>({0.1, 1.0 / 3, -1.7e308, -0.0, INFINITY});
    Held() {
      register_module("fc", fc);
      register_buffer("whole", whole);
      register_buffer("real", real);
    }
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  const int ranks = GENERATE(1, 3);
  run_ddp_ranks(ranks, [](ProcessGroup& group) {
    Held net;
    const auto whole = to_vector<int64_t>(net.whole);
    const auto real = to_vector<double>(net.real);
    VirtualRanks shards(net, group, {.shards = 3});
    for (int step = 0; step < 3; ++step)
      shards.step(7, [&](const VirtualRanks::Shard& shard) {
        const Tensor sum = ringgrad::sum(net(ones({shard.end - shard.begin, 6})));
        sum.backward();
        return sum;
      });
    must(to_vector<int64_t>(net.whole) == whole, "integers");
    const auto now = to_vector<double>(net.real);
    must(std::memcmp(now.data(), real.data(), sizeof(double) * real.size()) == 0, "float64");
  });
}

}  // namespace ringgrad::test::virtual_ranks_test
