// SyncBatchNorm: several ranks normalise, and train, as one rank that has all their samples.
#include "ringgrad/distributed/sync_batch_norm.h"

#include <atomic>

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/distributed/virtual_ranks.h"
#include "ringgrad/models/resnet.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::sync_batch_norm_test {

namespace {

// 20 steps of global batches of 12, 12, 12 and 7; without a group on one rank.
std::vector<double> train_steps(nn::Module& model, DType dtype, int rank, int ranks) {
  optim::SGD optimizer(model.named_parameters(), {.lr = 0.05, .momentum = 0.9});
  for (int64_t step = 0, begin = 0; step < 20; ++step) {
    const int64_t end = begin + (step % 4 == 3 ? 7 : 12);
    const auto [x, target] = samples({1, 8, 8}, 10, dtype, begin, end, rank, ranks);
    optimizer.zero_grad();
    cross_entropy(model(x), target).backward();
    optimizer.step();
    begin = end;
  }
  return flat_values(model);
}

}  // namespace

TEST_CASE("ranks with SyncBatchNorm train as one rank", "[sync_batch_norm][quick][threads]") {
  const DType dtype = GENERATE(DType::Float32, DType::Float64);
  const auto alone = train_steps(*make_net<TwiceNormedCnn>(3, dtype), dtype, 0, 1);
  for (const int ranks : {1, 2, 3, 4}) {
    std::vector<double> result;
    run_ddp_ranks(ranks, [&](ProcessGroup& group) {
      const auto net = make_net<TwiceNormedCnn>(3, dtype);
      must(convert_sync_batchnorm(*net, group) == 2, "two are converted");
      DistributedDataParallel ddp(*net, group);
      const auto values = train_steps(ddp, dtype, group.rank(), ranks);
      ddp.check_identical();
      if (group.is_main_process()) result = values;
    });
    CHECK(relative_difference(result, alone) < training_tolerance(dtype));
  }
}

TEST_CASE("each rank's output is its part of the whole batch's",
          "[sync_batch_norm][quick][threads]") {
  const DType dtype = GENERATE(DType::Float32, DType::Float64, DType::BFloat16);
  const Shape sample{3, 4, 5};
  const auto whole = samples(sample, 2, dtype, 0, 7).x;
  const DType per_channel = dtype == DType::Float64 ? dtype : DType::Float32;
  const Tensor mean = zeros({3}, {.dtype = per_channel});
  const Tensor var = ones({3}, {.dtype = per_channel});
  const Tensor y = batch_norm(whole, {}, {}, mean, var);
  run_ddp_ranks(3, [&](ProcessGroup& group) {
    const auto x = samples(sample, 2, dtype, 0, 7, group.rank(), 3).x;
    const Tensor own_mean = zeros_like(mean);
    const Tensor own_var = ones_like(var);
    const Tensor own = sync_batch_norm(x, {}, {}, own_mean, own_var, {}, group);
    for (int64_t i = 0; i < own.size(0); ++i) {
      const Tensor want =
          as_contiguous(slice(y, 0, group.rank() + 3 * i, group.rank() + 3 * i + 1));
      const Tensor got = as_contiguous(slice(own, 0, i, i + 1));
      must(difference(got, to_vector<double>(want), {dtype, 140}).empty(), "output");
    }
    must(difference(own_mean, to_vector<double>(mean), {per_channel, 140}).empty(), "running mean");
    must(difference(own_var, to_vector<double>(var), {per_channel, 140}).empty(),
         "running variance");
  });
}

TEST_CASE("a rank may have no sample", "[sync_batch_norm][quick][threads]") {
  const DType dtype = GENERATE(DType::Float32, DType::Float64);
  const Shape sample{3, 4, 5};
  const Tensor whole = samples(sample, 2, dtype, 0, 7).x.set_requires_grad();
  const Tensor weights = samples(sample, 2, dtype, 7, 14).x;  // the weights in the loss
  const Tensor scale = tensor<double>({0.5, 1, 2}).to(dtype).set_requires_grad();
  const Tensor mean = zeros({3}, {.dtype = dtype});
  const Tensor var = ones({3}, {.dtype = dtype});
  const Tensor y = batch_norm(whole, scale, {}, mean, var);
  y.backward(weights * (1 / 7.0));
  const int64_t begins[] = {0, 3, 3, 7};
  run_ddp_ranks(3, [&](ProcessGroup& group) {
    const int64_t begin = begins[group.rank()];
    const int64_t end = begins[group.rank() + 1];
    const auto part = [&](const Tensor& x) {
      return as_contiguous(slice(x.detach(), 0, begin, end));
    };
    const Tensor x = part(whole).set_requires_grad();
    const Tensor own_scale = scale.detach().clone().set_requires_grad();
    const Tensor own_mean = zeros_like(mean);
    const Tensor own_var = ones_like(var);
    const Tensor own = sync_batch_norm(x, own_scale, {}, own_mean, own_var, {}, group);
    const auto n = static_cast<double>(end - begin);
    own.backward(part(weights) * (n > 0 ? 1 / n : 1.0));
    must(difference(own, to_vector<double>(part(y)), {dtype, 140}).empty(), "output");
    must(difference(own_mean, to_vector<double>(mean), {dtype, 140}).empty(), "running mean");
    must(difference(own_var, to_vector<double>(var), {dtype, 140}).empty(), "running variance");
    const Tensor dx = x.grad() * n;
    const Tensor want = part(whole.grad()) * 7.0;
    must(difference(dx, to_vector<double>(want), {dtype, 140}).empty(), "gradient");
    if (n == 0) must(own_scale.grad().abs().sum().item<double>() == 0, "no weight's gradient");
  });
}

TEST_CASE("one sample on each of two ranks is enough", "[sync_batch_norm][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const Tensor x = full({1, 1, 1, 1}, group.rank() == 0 ? -3 : 3);
    const float y = sync_batch_norm(x, {}, {}, {}, {}, {}, group).item<float>();
    must(std::abs(y - (group.rank() == 0 ? -1 : 1)) < 1e-4, "normalised over both");
  });
  const auto errors = errors_of_ranks(host_groups(1), [](ProcessGroup& group) {
    sync_batch_norm(zeros({1, 1, 1, 1}), {}, {}, {}, {}, {}, group);
  });
  require_contains(errors[0], "all ranks together have 1 value per channel");
}

TEST_CASE("what batch_norm() refuses is refused before anything is sent",
          "[sync_batch_norm][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    nn::BatchNorm2d bn(2);
    convert_sync_batchnorm(bn, group);
    must_be_refused(group, "sync_batch_norm: the weight has shape [2]", [&] {
      bn(ones({2, 4, 2, 2}));
    });
    must_be_refused(group,
                    "sync_batch_norm: the input has shape [2, 2, 2, 2], expected [N, C, H, "
                    "W] to be pooled by 3×3",
                    [&] {
                      bn(ones({2, 2, 2, 2}), {.max_pool = 3});
                    });
  });
}

TEST_CASE("a residual network is converted as a whole, and evaluates alone",
          "[sync_batch_norm][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<models::CifarResNet>(3, DType::Float32, 20);
    must(convert_sync_batchnorm(*net, group) == 19, "every batch norm of ResNet-20");
    net->eval();
    if (group.rank() == 0) (*net)(zeros({1, 3, 32, 32}));  // not collective
  });
}

namespace {

// Two ways through, the first for the rows of some ranks, the second for those of others.
struct Fork : nn::Module {
  nn::Conv2d conv{1, 4, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm2d bn{4};
  nn::BatchNorm2d bn1{4};
  nn::BatchNorm2d bn2{4};
  nn::Linear one{4 * 8 * 8, 10};
  nn::Linear two{4 * 8 * 8, 10};
  bool normed = false;  // the ways have a batch norm each
  bool second = false;
  Fork() {
    register_module("conv", conv);
    register_module("bn", bn);
    register_module("bn1", bn1);
    register_module("bn2", bn2);
    register_module("one", one);
    register_module("two", two);
  }
  Tensor body(const Tensor& x) { return bn(conv(x), {.activation = Activation::Relu}); }
  Tensor forward(const Tensor& x) override {
    const Tensor h = body(x);
    if (normed) return flatten(second ? bn2(h) : bn1(h), 1);
    return (second ? two : one)(flatten(h, 1));
  }
};

}  // namespace

TEST_CASE("a branch that only one rank uses goes with SyncBatchNorm",
          "[sync_batch_norm][quick][threads]") {
  constexpr int64_t kOwn = 5;
  const auto alone = make_net<Fork>(3, DType::Float64);
  const auto whole = samples({1, 8, 8}, 10, DType::Float64, 0, 2 * kOwn);
  const Tensor h = flatten(alone->body(whole.x), 1);
  const auto loss_of = [&](const Tensor& logits, int64_t begin) {
    return cross_entropy(logits, slice(whole.target, 0, begin, begin + kOwn));
  };
  ((loss_of(alone->one(slice(h, 0, 0, kOwn)), 0) +
    loss_of(alone->two(slice(h, 0, kOwn, 2 * kOwn)), kOwn)) *
   0.5)
      .backward();
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    const auto net = make_net<Fork>(3, DType::Float64);
    must(convert_sync_batchnorm(*net, group) == 3, "three are converted");
    DistributedDataParallel ddp(*net, group, {.caps = {64, 64}});
    net->second = group.rank() == 1;
    const auto [x, target] =
        samples({1, 8, 8}, 10, DType::Float64, kOwn * group.rank(), kOwn * (group.rank() + 1));
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      cross_entropy(ddp(x), target).backward();
      for (const auto& [name, parameter] : net->named_parameters())
        for (const auto& [own_name, own] : alone->named_parameters())
          must(own_name != name || !own.grad() ||
                   relative_difference(to_vector<double>(parameter.grad()),
                                       to_vector<double>(own.grad())) < 1e-12,
               "the gradient of " + name);
    }
  });
}

TEST_CASE("layers that differ are not normalised together", "[sync_batch_norm][quick][threads]") {
  const auto errors = errors_of_ranks(host_groups(2), [](ProcessGroup& group) {
    const auto net = make_net<Fork>(3, DType::Float64);
    convert_sync_batchnorm(*net, group);
    net->normed = true;
    net->second = group.rank() == 1;
    (*net)(samples({1, 8, 8}, 10, DType::Float64, 0, 4).x);
  });
  for (const std::string& error : errors) {
    require_contains(error, "batch norm's statistics of bn");
    require_contains(error, "out of step");
  }
}

TEST_CASE("a backward that throws ends the ranks that wait for its sums, with the reason",
          "[sync_batch_norm][quick][threads]") {
  const bool shards = GENERATE(false, true);
  const bool averages = shards || GENERATE(false, true);
  std::atomic<bool> heard = false;  // by rank 0, while rank 1 still has its groups
  const auto errors = errors_of_ranks(host_groups(2), [&](ProcessGroup& group) {
    const int rank = group.rank();
    const auto net = make_net<TwiceNormedCnn>(3, DType::Float32);
    const Samples own = samples({1, 8, 8}, 10, DType::Float32, rank * 4, rank * 4 + 4);
    const ScopedHook boom(register_post_accumulate_grad_hook(net->fc.bias, [rank](const Tensor&) {
      if (rank == 1) throw Error("boom");
    }));
    const auto step = [&] {
      if (shards) {
        VirtualRanks ranks(*net, group, {.shards = 2, .sync_batch_norm = true});
        ranks.step(8, [&](const VirtualRanks::Shard&) {
          const Tensor loss = sum((*net)(own.x));
          loss.backward();
          return loss;
        });
        return;
      }
      convert_sync_batchnorm(*net, group);
      DistributedDataParallel ddp(*net, group);
      const auto backward = [&] { sum(ddp(own.x)).backward(); };
      if (averages) return backward();
      const auto no_sync = ddp.no_sync();
      backward();
    };
    try {
      step();
    } catch (...) {
      if (rank == 1) heard.wait(false);
      heard = true;
      heard.notify_all();
      throw;
    }
  });
  require_contains(errors[0], "on rank 1");
  require_contains(errors[0], "has failed: boom");
  CHECK(errors[1] == "boom");
}

TEST_CASE("a layer for which no other rank comes is named with the timeout",
          "[sync_batch_norm][quick][threads]") {
  std::atomic<bool> given_up = false;
  auto groups = host_groups(2, "shm", {.timeout = std::chrono::milliseconds(300)});
  const auto errors = errors_of_ranks(std::move(groups), [&](ProcessGroup& group) {
    const auto net = make_net<Fork>(3, DType::Float64);
    convert_sync_batchnorm(*net, group);
    const Tensor x = samples({1, 8, 8}, 10, DType::Float64, 0, 4).x;
    // Its own does not count while threads start.
    group.barrier({.timeout = std::chrono::seconds(30)}).wait();
    net->body(x);
    if (group.rank() == 1) return given_up.wait(false);
    try {
      net->bn1(net->conv(x));
    } catch (...) {
      given_up = true;
      given_up.notify_all();
      throw;
    }
  });
  require_contains(errors[0], "batch norm's statistics of bn1");
  require_contains(errors[0], "rank 1 has not come to it");
}

}  // namespace ringgrad::test::sync_batch_norm_test
