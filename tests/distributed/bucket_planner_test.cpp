// The α–β model of an all-reduce, the plan of buckets by it, and that all ranks of
// DistributedDataParallel have rank 0's.
#include <cmath>

#include "ringgrad/distributed/planner/bucket_planner.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"

namespace ringgrad::test::bucket_planner_test {
namespace {

using test::must;

std::vector<LinkSample> line(double latency, double per_byte) {
  std::vector<LinkSample> samples;
  for (const double bytes : {4096., 65536., 1048576., 16777216.})
    samples.push_back({bytes, latency + per_byte * bytes});
  return samples;
}

TEST_CASE("a line through measured all-reduces gives latency and time per byte", "[quick]") {
  const LinkModel model = fit(line(30e-6, 2e-10));
  CHECK(model.latency == Approx(30e-6));
  CHECK(model.per_byte == Approx(2e-10));
  CHECK(model.seconds(1e6) == Approx(230e-6));

  // The fit is weighted by 1/t², so equal relative errors count equally at both ends. For (x, t) =
  // (0, 1), (0, 2), (1, 3) the normal equations give a = (1/1 + 1/2) / (1/1 + 1/4) = 1.2 and b = 3
  // - 1.2.
  const LinkModel uneven = fit(std::vector<LinkSample>{{0, 1}, {0, 2}, {1, 3}});
  CHECK(uneven.latency == Approx(1.2));
  CHECK(uneven.per_byte == Approx(1.8));

  CHECK(fit({}).seconds(1e6) == 0);
  // One size: no latency.
  CHECK(fit(std::vector<LinkSample>{{1e6, 1e-3}, {1e6, 1e-3}}).per_byte == Approx(1e-9));
  // It would be negative.
  CHECK(fit(std::vector<LinkSample>{{1e3, 1e-7}, {1e6, 1e-3}}).latency == 0);
  // So would this.
  CHECK(fit(std::vector<LinkSample>{{1e3, 1e-3}, {1e6, 1e-4}}).per_byte == 0);
}

// Returns `count` gradients of one size; the first is ready after `first` seconds, the last after
// `last`.
std::vector<ReadyGradient> gradients(int count, int64_t bytes, double first, double last) {
  std::vector<ReadyGradient> all;
  for (int i = 0; i < count; ++i) all.push_back({bytes, first + (last - first) * i / (count - 1)});
  return all;
}

TEST_CASE(
    "buckets are the root of travelling time over latency, "
    "or of backward's where the link is slower",
    "[quick]") {
  const auto ready = gradients(41, 400'000, 0.010, 0.050);  // S = 16.4 MB in B = 40 ms
  const auto caps_of = [&](double latency, double per_byte) {
    return plan_caps({latency, per_byte}, ready).bytes;
  };
  // √(16.4 ms / 0.1 ms) = 12.8.
  CHECK(caps_of(1e-4, 1e-9) == static_cast<int64_t>(std::ceil(16.4e6 / 13)));
  // √(40 ms / 0.1 ms) = 20.
  CHECK(caps_of(1e-4, 1e-8) == static_cast<int64_t>(std::ceil(16.4e6 / 20)));
  // All latency: one bucket.
  CHECK(caps_of(1, 1e-9) == 16'400'000);
  // No latency: as small as may be.
  CHECK(caps_of(0, 1e-9) == 4096);
  CHECK(plan_caps({1, 1e-9}, gradients(10, 10'000'000, 0, 1)).bytes == 25 << 20);
  CHECK(plan_caps({1e-4, 1e-9}, {{1000, 0.001}}).bytes == 4096);  // one gradient
}

TEST_CASE("no other number of equal buckets is much better by the model's own timeline",
          "[quick]") {
  // Returns the exposed time and the latencies of the buckets, for k equal buckets of an evenly
  // ready arena.
  const double bytes = 16e6;
  const double computes = 0.040;
  for (const double per_byte : {2e-10, 1e-9, 8e-9})
    for (const double latency : {1e-5, 1e-4, 1e-3}) {
      const LinkModel link{latency, per_byte};
      const auto cost = [&](int k) {
        std::vector<ReadyGradient> buckets;
        for (int i = 1; i <= k; ++i)
          buckets.push_back({static_cast<int64_t>(bytes / k), computes * i / k});
        const bool keeps_up = per_byte * bytes < computes;
        return finished(link, buckets) - computes + (keeps_up ? k * latency : 0);
      };
      double best = INFINITY;
      for (int k = 1; k <= 2000; ++k) best = std::min(best, cost(k));
      const auto cap = plan_caps(link, gradients(1601, 10'000, 0, computes)).bytes;
      CHECK(cost(static_cast<int>(std::round(bytes / static_cast<double>(cap)))) <= 1.05 * best);
    }
}

TEST_CASE("buckets are averaged one after the other, each when it is ready", "[quick]") {
  const LinkModel link{0.5, 0.001};
  CHECK(finished(link, {}) == 0);
  // 1 … 2.5 … 3.5; 10 … 10.6.
  CHECK(finished(link, {{1000, 1}, {500, 2}, {100, 10}}) == Approx(10.6));
  CHECK(finished(link, {{1000, 1}, {500, 2}}) == Approx(3.5));
}

TEST_CASE(
    "all ranks have the caps that rank 0's planner chooses, and a run that goes on has them again",
    "[quick][threads]") {
  test::run_ddp_ranks(3, [](ProcessGroup& group) {
    const auto plans = [&](int64_t bytes) {
      DistributedDataParallelOptions options;
      options.planner = [bytes, rank = group.rank()](const std::vector<ReadyGradient>& ready) {
        must(rank == 0, "another rank than 0 plans");
        must(ready.size() == 6, "a planner sees every gradient once");
        for (size_t i = 1; i < ready.size(); ++i)
          must(ready[i].seconds >= ready[i - 1].seconds, "not in order of readiness");
        return BucketCaps{bytes, bytes};
      };
      return options;
    };
    const auto step = [&](DistributedDataParallel& ddp, nn::Module& net) {
      net.zero_grad();
      sum(ddp(full({2, 1, 8, 8}, 0.1 * (group.rank() + 1)))).backward();
    };
    const auto net = test::make_net<test::SmallCnn>(1, DType::Float32);
    DistributedDataParallel ddp(*net, group, plans(1024));
    step(ddp, *net);
    must(ddp.log().buckets.size() == 1, "planned before the first step");
    must(ddp.bucket_caps() == BucketCaps{1024, 1024}, "not planned after the first step");
    step(ddp, *net);
    must(ddp.log().buckets.size() > 3, "the plan has changed nothing");
    ddp.check_identical();

    const auto other = test::make_net<test::SmallCnn>(1, DType::Float32);
    DistributedDataParallel resumed(*other, group, plans(1 << 20));
    resumed.set_ready_order(ddp.ready_order(), ddp.bucket_caps());
    step(resumed, *other);
    must(resumed.log().buckets.size() == ddp.log().buckets.size(),
         "a run that goes on has other buckets");
    must(resumed.bucket_caps() == ddp.bucket_caps(), "it has planned again");
  });
}

TEST_CASE("a planner that measures gives a plan for small gradients", "[quick][threads]") {
  test::run_ddp_ranks(2, [](ProcessGroup& group) {
    const BucketCaps caps = plan_by_measuring(group)(gradients(10, 100'000, 0, 0.001));
    must(caps.bytes >= 4096 && caps.bytes <= 25 << 20 && caps.first_bytes == caps.bytes, "no plan");
  });
}

}  // namespace
}  // namespace ringgrad::test::bucket_planner_test
