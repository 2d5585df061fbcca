// GradientBuckets alone, without a wrapper and its policies: backward hides the averages.
#include "ringgrad/distributed/buckets/gradient_buckets.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"

namespace ringgrad::test::gradient_buckets_test {

namespace {

constexpr BucketCaps kSmall{64, 256};

// Writes down which sums were launched, and whether backward went on.
struct Watched : GradientBuckets {
  using GradientBuckets::GradientBuckets;
  Work sum(const GradientBucket& bucket, const CollectiveOptions& options) override {
    launched_in_backward.push_back(options.async);
    indices.push_back(bucket.index);
    return GradientBuckets::sum(bucket, options);
  }
  std::vector<bool> launched_in_backward;
  std::vector<int> indices;
};

}  // namespace

TEST_CASE("gradient buckets average what backward leaves, and parameters without a gradient",
          "[gradient_buckets][quick][threads]") {
  run_ddp_ranks(3, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(5, DType::Float64);
    const auto alone = make_net<Mlp>(5, DType::Float64);
    NamedTensors parameters = net->named_parameters();
    const Tensor unused = full({3}, 1.0, {.dtype = DType::Float64});
    Tensor(unused).set_requires_grad(true);
    parameters.emplace_back("unused", unused);
    const auto buckets = std::make_shared<GradientBuckets>("test", group, parameters, kSmall);
    for (int step = 0; step < 3; ++step) {
      for (const auto& module : {net.get(), alone.get()})
        for (const Tensor& parameter : module->parameters()) parameter.set_grad({});
      const auto [x, target] = samples({6}, 3, DType::Float64, 0, 12, group.rank(), 3);
      cross_entropy((*net)(x), target).backward();
      const auto [all, targets] = samples({6}, 3, DType::Float64, 0, 12);
      cross_entropy((*alone)(all), targets).backward();  // ranks have equally many samples
      must(relative_difference(gradients(*net), gradients(*alone)) < 1e-13, "the average");
      must(to_vector<double>(unused.grad()) == std::vector<double>(3, 0.0), "zeros");
      must(buckets->step() == step, "a backward is a step");
    }
  });
}

TEST_CASE("gradient buckets leave in their order, all but the last while backward runs",
          "[gradient_buckets][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(5, DType::Float32);
    const auto buckets = std::make_shared<Watched>("test", group, net->named_parameters(), kSmall);
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, 8, group.rank(), 2);
    cross_entropy((*net)(x), target).backward();
    must(buckets->indices.size() > 3, "several buckets");
    for (size_t b = 0; b < buckets->indices.size(); ++b) {
      must(buckets->indices[b] == static_cast<int>(b), "in their order");
      must(buckets->launched_in_backward[b] == (b + 1 < buckets->indices.size()), "when");
    }
  });
}

TEST_CASE("a backward that fails leaves gradient buckets usable",
          "[gradient_buckets][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(5, DType::Float64);
    const auto buckets =
        std::make_shared<GradientBuckets>("test", group, net->named_parameters(), kSmall);
    const auto [x, target] = samples({6}, 3, DType::Float64, 0, 8, group.rank(), 2);
    {
      const ScopedHook fails(register_post_accumulate_grad_hook(
          net->first.weight, [](const Tensor&) { throw Error("a hook's own error"); }));
      must_be_refused(group, "a hook's own error",
                      [&] { cross_entropy((*net)(x), target).backward(); });
    }
    for (const Tensor& parameter : net->parameters()) parameter.set_grad({});
    cross_entropy((*net)(x), target).backward();
    const auto own = gradients(*net);
    const Tensor others = tensor(own);
    group.broadcast(others, 0).wait();
    must(to_vector<double>(others) == own, "the ranks have the same gradients");
  });
}

TEST_CASE("two gradients of a parameter in one backward are an error, not half an average",
          "[gradient_buckets][quick][threads]") {
  struct Twice : GradientBuckets {
    using GradientBuckets::GradientBuckets;
    void gradient_complete(int parameter, const Tensor& leaf) override {
      GradientBuckets::gradient_complete(parameter, leaf);
      GradientBuckets::gradient_complete(parameter, leaf);
    }
  };
  const auto errors = errors_of_ranks(host_groups(2), [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(5, DType::Float32);
    const auto buckets = std::make_shared<Twice>("test", group, net->named_parameters(), kSmall);
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, 8, group.rank(), 2);
    cross_entropy((*net)(x), target).backward();
  });
  for (const std::string& error : errors)
    CHECK(error.find(" came twice in the backward of step 0 on rank ") != std::string::npos);
}

}  // namespace ringgrad::test::gradient_buckets_test
