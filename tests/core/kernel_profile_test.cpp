// The profile of kernels against counts by hand.
#include <chrono>
#include <string>
#include <thread>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/kernel_profile.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::kernel_profile_test {

TEST_CASE("a profile counts a matrix product's operations and bytes", "[quick]") {
  const Tensor a = ones({2, 3, 5});
  const Tensor b = ones({2, 5, 7});
  const Tensor c = empty({2, 3, 7});
  const KernelProfile profile;
  kernels::matmul(c, a, b, Tensor());
  REQUIRE(profile.calls().size() == 1);
  const KernelCall& call = profile.calls()[0];
  REQUIRE(call.kernel == std::string("matmul"));
  REQUIRE(call.dtype == DType::Float32);
  REQUIRE(call.operations == 2 * (2 * 3 * 7 * 5));
  REQUIRE(call.bytes == 4 * (2 * 3 * 5 + 2 * 5 * 7 + 2 * 3 * 7));
  REQUIRE(call.milliseconds > 0);
}

TEST_CASE("a convolution and its gradients have the same operations, in every layout", "[quick]") {
  const int64_t n = 2;
  const int64_t c = 6;
  const int64_t k = 4;
  const int64_t out = 5;
  const int64_t filter = 3;
  const int64_t groups = 2;
  const double expected = 2.0 * n * k * out * out * (c / groups) * filter * filter;
  for (const int64_t group_count : {int64_t{1}, groups}) {
    const Conv2dOptions options{.stride = 2, .groups = group_count};
    const Tensor x = ones({n, c, 11, 11});
    const Tensor w = ones({k, c / group_count, filter, filter});
    x.set_requires_grad();
    w.set_requires_grad();
    const KernelProfile profile;
    sum(conv2d(x, w, {}, options)).backward();
    int seen = 0;
    for (const KernelCall& call : profile.calls()) {
      if (std::string(call.kernel).rfind("conv2d", 0) != 0) continue;
      ++seen;
      INFO(call.kernel << " with " << group_count << " groups");
      REQUIRE(call.operations == (group_count == groups ? expected : groups * expected));
    }
    REQUIRE(seen == 3);
  }
}

TEST_CASE("a profile names the algorithm of each pass of a convolution of ours", "[quick]") {
  const auto plans = [](Provider provider, int64_t channels, int64_t groups) {
    const ProviderGuard guard(provider);
    const Tensor x = ones({2, channels, 16, 16});
    const Tensor w = ones({channels, channels / groups, 3, 3});
    x.set_requires_grad();
    w.set_requires_grad();
    const KernelProfile profile;
    sum(conv2d(x, w, {}, {.padding = 1, .groups = groups})).backward();
    std::vector<std::string> named;
    for (const KernelCall& call : profile.calls())
      if (std::string(call.kernel).rfind("conv2d", 0) == 0)
        named.push_back(call.plan);
      else
        CHECK(call.plan.empty());
    return named;
  };
  const std::vector<std::string> winograd(3, "Winograd F(4, 3)");
  CHECK(plans(Provider::Native, 32, 1) == winograd);
  const std::vector<std::string> planes(3, "planes");
  CHECK(plans(Provider::Native, 32, 4) == planes);
  CHECK(plans(Provider::Reference, 32, 1) == std::vector<std::string>(3));
}

TEST_CASE("bytes: repeated elements once, undefined arguments not, a block's padding too",
          "[quick]") {
  const Tensor row = ones({1, 8});
  const Tensor y = empty({100, 8});
  {
    const KernelProfile profile;
    kernels::add(y, row.as_strided({100, 8}, {0, 1}, 0), y);
    REQUIRE(profile.calls()[0].bytes == 4 * (8 + 100 * 8 + 100 * 8));
    REQUIRE(profile.calls()[0].operations == 0);
  }
  const Tensor blocked = empty({2, 3, 4, 4}, {.layout = Layout::ChannelBlocked});
  const KernelProfile profile;
  kernels::fill(blocked, 1);
  REQUIRE(profile.calls()[0].bytes == 4 * (2 * 16 * 4 * 4));
}

TEST_CASE("a kernel's numbers are without those of the kernels it calls", "[quick]") {
  // adaptive_avg_pool2d_backward fills dx first
  const Tensor dx = empty({4, 8, 32, 32});
  const Tensor dy = ones({4, 8, 3, 3});
  const auto start = std::chrono::steady_clock::now();
  const KernelProfile profile;
  kernels::adaptive_avg_pool2d_backward(dx, dy);
  const double wall =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  REQUIRE(profile.calls().size() == 2);
  REQUIRE(profile.calls()[0].kernel == std::string("fill"));
  REQUIRE(profile.calls()[1].kernel == std::string("adaptive_avg_pool2d_backward"));
  REQUIRE(profile.calls()[1].milliseconds > 0);
  REQUIRE(profile.calls()[0].milliseconds + profile.calls()[1].milliseconds <= wall);
  REQUIRE(profile.calls()[0].bytes + profile.calls()[1].bytes == 4 * (dx.numel() + dy.numel()));
}

TEST_CASE("a profile sees its own thread and its own lifetime", "[quick][threads]") {
  const Tensor x = empty({8});
  {
    const KernelProfile outer;
    kernels::fill(x, 1);
    {
      const KernelProfile inner;
      kernels::fill(x, 2);
      std::thread([&] { kernels::fill(empty({8}), 3); }).join();
      REQUIRE(inner.calls().size() == 1);
    }
    kernels::fill(x, 4);
    REQUIRE(outer.calls().size() == 2);
  }
  REQUIRE(KernelObserver::current() == nullptr);
  kernels::fill(x, 5);  // no profile is active
}

TEST_CASE("a kernel that throws leaves the profile usable", "[quick]") {
  const Tensor integers = empty({8}, {.dtype = DType::Int64});
  const KernelProfile profile;
  REQUIRE_THROWS(kernels::exp(integers, integers));
  kernels::fill(integers, 1);
  REQUIRE(profile.calls().size() == 1);
  REQUIRE(profile.calls()[0].kernel == std::string("fill"));
}

}  // namespace ringgrad::test::kernel_profile_test
