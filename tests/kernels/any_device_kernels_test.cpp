// Tests kernels, on every device there is, with arguments that operations refuse before they reach
// the kernel. Examples are an index outside of its dimension (a GPU cannot throw), and numbers that
// are large against their deviation.
#include "ringgrad/core/kernels.h"

#include <cmath>
#include <limits>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::any_device_kernels_test {

namespace {

using Values = std::vector<double>;

std::vector<Device> devices() {
  std::vector<Device> all = {Device()};
  if (device_count(DeviceType::CUDA) > 0) all.push_back(Device(DeviceType::CUDA));
  return all;
}

}  // namespace

TEST_CASE("in every dtype an index outside is skipped, and a sum is added to what is there",
          "[quick][cuda]") {
  for (const Device device : devices())
    for (DType dtype : {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                        DType::Int64, DType::Int32, DType::UInt8}) {
      INFO(device << ' ' << dtype);
      const auto index = [&](const std::vector<int64_t>& places, const Shape& shape) {
        return to(tensor(places, shape), device);
      };
      const Tensor x = empty({1, 3, 1}, {dtype, device});
      const Tensor y = zeros({1, 3, 1}, {dtype, device});
      copy_(x, tensor<float>({1, 2, 3}, {1, 3, 1}));
      kernels::index_select(y, x, index({-1, 1, 3}, {3}));
      CHECK(to_vector<double>(y) == Values{0, 2, 0});
      kernels::gather(y, x, index({7, -9, 2}, {1, 3, 1}));
      CHECK(to_vector<double>(y) == Values{0, 2, 3});
      kernels::index_add(x, y, index({-1, 1, 3}, {3}));
      CHECK(to_vector<double>(x) == Values{1, 4, 3});
      kernels::scatter_add(x, y, index({1, 3, 0}, {1, 3, 1}));
      CHECK(to_vector<double>(x) == Values{4, 4, 3});
    }
}

TEST_CASE("ReLU behind batch norm keeps NaN, whoever computes it", "[quick][cuda]") {
  for (const Device device : devices())
    for (const DType dtype : {DType::Float32, DType::BFloat16})
      for (const Provider provider : {Provider::Native, Provider::Vendor})
        for (const bool with_residual : {false, true}) {
          INFO(device << ' ' << dtype << ' ' << name(provider)
                      << (with_residual ? ", with residual" : ""));
          const ProviderGuard guard(provider);
          // Channel 0 has a NaN, and so a mean that is none; of channel 1 a half is below zero.
          Values values(2 * 16 * 2 * 2, 1);
          for (size_t i = 0; i < values.size(); ++i)
            values[i] = i / 4 % 16 == 0 ? 1 : i % 2 ? -1 : 1;
          values[0] = NAN;
          const Layout layout = device.is_cuda() ? Layout::ChannelsLast : Layout::Strided;
          const Tensor x = empty({2, 16, 2, 2}, {dtype, device, layout});
          const Tensor y = empty_like(x);
          const Tensor residual = zeros_like(x);
          copy_(x, tensor(values, x.shape()));
          const auto channels = [&] { return ones({16}, {.device = device}); };
          kernels::batch_norm(y, {}, channels(), channels(), x, channels(),
                              zeros({16}, {.device = device}), with_residual ? residual : Tensor(),
                              1e-5, true, {});
          const Values got = to_vector<double>(y);
          for (size_t i = 0; i < got.size(); ++i)
            CHECK(
                (i / 4 % 16 == 0 ? std::isnan(got[i]) : std::abs(got[i] - (i % 2 ? 0 : 1)) < 1e-2));
        }
}

TEST_CASE("a target outside the classes gives NaN, an ignored one 0", "[quick][cuda]") {
  for (const Device device : devices()) {
    INFO(device);
    const auto blank = [&](const Shape& shape) { return empty(shape, {.device = device}); };
    const auto nans = [](const Tensor& x) {
      std::vector<bool> result;
      for (const double value : to_vector<double>(x)) result.push_back(std::isnan(value));
      return result;
    };
    const Tensor x = zeros({3, 2}, {.device = device});
    const Tensor t = to(tensor<int64_t>({2, -1, 1}), device);
    const Tensor loss = blank({3});
    const Tensor weight = blank({3});
    const Tensor lse = blank({3, 2});
    const Tensor dx = blank({3, 2});
    kernels::cross_entropy(loss, weight, lse, x, t, {}, {.ignore_index = -1});
    CHECK(nans(loss) == std::vector<bool>{true, false, false});
    kernels::cross_entropy_backward(dx, ones({3}, {.device = device}), x, lse, t, {},
                                    {.ignore_index = -1});
    CHECK(nans(dx) == std::vector<bool>{true, true, false, false, false, false});
    kernels::nll_loss(loss, weight, x, t, {}, -1);
    CHECK(nans(loss) == std::vector<bool>{true, false, false});
    kernels::nll_loss_backward(dx, ones({3}, {.device = device}), t, {}, -1);
    CHECK(nans(dx) == std::vector<bool>{true, true, false, false, false, false});
    CHECK(to_vector<double>(weight)[1] == 0);
  }
}

TEST_CASE("the loss of a class survives a large number that all logits have in common",
          "[quick][cuda]") {
  for (const Device device : devices())
    for (const float common : {0.f, 1e6f, 1e7f}) {
      INFO(device << " " << common);
      const auto blank = [&](const Shape& shape) { return empty(shape, {.device = device}); };
      const Tensor x = to(tensor<float>({common, common + 1, common - 1}, {1, 3}), device);
      const Tensor t = to(tensor<int64_t>({0}), device);
      const Tensor loss = blank({1});
      const Tensor weight = blank({1});
      const Tensor lse = blank({1, 2});
      const Tensor dx = blank({1, 3});
      kernels::cross_entropy(loss, weight, lse, x, t, {}, {});
      kernels::cross_entropy_backward(dx, ones({1}, {.device = device}), x, lse, t, {}, {});
      const double e = std::exp(1);
      const double sum = 1 + e + 1 / e;
      CHECK(difference(loss, {std::log(sum)}, {DType::Float32, 3}) == "");
      CHECK(difference(dx, {1 / sum - 1, e / sum, 1 / e / sum}, {DType::Float32, 3}) == "");
    }
}

TEST_CASE("a view may go backwards through memory", "[quick][cuda]") {
  for (const Device device : devices())
    for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Int64}) {
      const Tensor x = to(to(arange(1000), dtype), device);
      for (const auto& [stride, n] : {std::pair<int64_t, int64_t>{-1, 1000}, {-3, 300}}) {
        const Tensor back = x.as_strided({n}, {stride}, 999);
        const Tensor pairs = x.as_strided({n / 2, 2}, {2 * stride, stride}, 999);
        const std::vector<double> all = to_vector<double>(to(x, DType::Float64));
        std::vector<double> want;
        for (int64_t i = 0; i < n; ++i) want.push_back(all[999 + i * stride]);
        const auto same = [&](const Tensor& y) {
          return to_vector<double>(to(reshape(y, {n}), DType::Float64)) == want;
        };
        CHECK(same(mul(back, 1)));
        CHECK(same(mul(pairs, 1)));
        const Tensor target = zeros_like(x);
        copy_(target.as_strided({n}, {stride}, 999), back);
        CHECK(same(target.as_strided({n}, {stride}, 999)));
      }
    }
}

TEST_CASE("sums of integers wrap", "[quick][cuda]") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const Device device : devices()) {
    INFO(device);
    const Tensor x = to(tensor<int64_t>({kMost, 2, 5000}), device);
    const Tensor y = empty({1}, {DType::Int64, device});
    kernels::sum(y, x, 1);
    CHECK(y.item<int64_t>() == std::numeric_limits<int64_t>::min() + 5001);
    const Tensor many = to(full({5000, 3}, 0x1p62, {.dtype = DType::Int64}), device);
    const Tensor columns = empty({1, 3}, {DType::Int64, device});
    kernels::sum(columns, many, 1);
    CHECK(to_vector<int64_t>(columns) == std::vector<int64_t>(3, 0));
    const Tensor place = zeros({1, 1, 1}, {DType::Int64, device});
    kernels::index_add(place, x.as_strided({1, 3, 1}, {3, 1, 1}, 0),
                       to(tensor<int64_t>({0, 0, 0}), device));
    CHECK(place.item<int64_t>() == std::numeric_limits<int64_t>::min() + 5001);
    const Tensor negative = to(tensor<int32_t>({-7, 2}), device);
    const Tensor total = empty({1}, {DType::Int32, device});
    kernels::sum(total, negative, 2);
    CHECK(total.item<int32_t>() == -10);
    if (!device.is_cpu()) continue;
    const ProviderGuard definition(Provider::Reference);
    kernels::fill(total, 0);
    kernels::sum(total, negative, 2);
    CHECK(total.item<int32_t>() == -10);
  }
}

TEST_CASE("average pools have each provider's means at every stride", "[quick]") {
  const Tensor x = full({1, 2, 9, 9}, 3, {.dtype = DType::Float32});
  for (const Provider provider : {Provider::Native, Provider::Vendor})
    for (const int64_t stride : {1, 2, 3, 4}) {
      CAPTURE(name(provider), stride);
      const ProviderGuard guard(provider);
      const Tensor y =
          avg_pool2d(x, {.kernel = 3, .stride = stride, .padding = 1, .count_padding = false});
      CHECK(max(abs(y - 3)).item<float>() <= 3 * 0x1p-22f);
    }
}

TEST_CASE("cross entropy asks no other class where nothing is smoothed", "[quick][cuda]") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Device device : devices())
    for (const Provider provider : {Provider::Native, Provider::Reference}) {
      if (provider == Provider::Reference && !device.is_cpu()) continue;
      const ProviderGuard guard(provider);
      const Tensor target = to(tensor<int64_t>({0}), device);
      const Tensor impossible = to(tensor<double>({0, -infinity}, {1, 2}), device);
      CHECK(cross_entropy(impossible, target).item<double>() == 0);
      const Tensor alike = zeros({1, 2}, {DType::Float64, device});
      const double loss = cross_entropy(alike, target, {.label_smoothing = 1}).item<double>();
      CHECK(std::abs(loss - std::log(2.0)) < 1e-15);
    }
}

TEST_CASE("batch norm in evaluation: what is not finite stays where it is", "[quick][cuda]") {
  for (const Device device : devices())
    for (const DType dtype : {DType::Float32, DType::Float64})
      for (const Layout layout : {Layout::Strided, Layout::ChannelBlocked}) {
        if (layout == Layout::ChannelBlocked && (dtype == DType::Float64 || !device.is_cpu()))
          continue;
        INFO(device << ' ' << dtype << ' ' << name(layout));
        const auto gradient = [&](const std::vector<double>& values,
                                  const std::vector<double>& dy) {
          const auto images = [&](const std::vector<double>& of) {
            const Tensor y = empty({4, 1, 1, 1}, {dtype, device, layout});
            copy_(y, to(tensor(of, {4, 1, 1, 1}), device));
            return y;
          };
          const auto channel = [&](double value) { return full({1}, value, {dtype, device}); };
          const Tensor x = images(values);
          const Tensor dx = empty_like(x);
          const Tensor sum = channel(0);
          const Tensor sum_xhat = channel(0);
          kernels::batch_norm_backward_reduce(sum, sum_xhat, images(dy), x, {}, channel(1),
                                              channel(4), 0);
          kernels::batch_norm_backward_apply(dx, {}, images(dy), x, {}, channel(1), channel(4),
                                             channel(6), sum, sum_xhat, 0, INFINITY);
          return to_vector<double>(dx);
        };
        CHECK(gradient({INFINITY, 2, 3, NAN}, {1, 1, 2, 1}) == Values{3, 3, 6, 3});
        const Values spoilt = gradient({1, 2, 3, 4}, {NAN, 1, INFINITY, 2});
        CHECK(std::isnan(spoilt[0]));
        CHECK(Values(spoilt.begin() + 1, spoilt.end()) == Values{3, INFINITY, 6});
      }
}

TEST_CASE("the mean of a large image is as exact as its pixels", "[quick][cuda]") {
  const int64_t size = 1024;
  // Row by row at the worst, each addition rounded (Higham 2002, §4.2); one sum after another would
  // be off by 6 %.
  const double bound = 2 * size * 0x1p-24;
  for (const Device device : devices())
    for (const Layout layout : {Layout::Strided, Layout::ChannelBlocked}) {
      if (layout == Layout::ChannelBlocked && !device.is_cpu()) continue;
      INFO(device << ' ' << name(layout));
      const Tensor x = empty({1, 1, size, size}, {.device = device, .layout = layout});
      copy_(x, full({1, 1, size, size}, 0.1, {.device = device}));
      const Tensor y = empty({1, 1, 1, 1}, {.device = device, .layout = layout});
      kernels::adaptive_avg_pool2d(y, x);
      CHECK(std::abs(y.item<float>() / 0.1f - 1) < bound);
      kernels::avg_pool2d(y, x, {.kernel = size, .stride = size});
      CHECK(std::abs(y.item<float>() / 0.1f - 1) < bound);
    }
}

TEST_CASE("the variance of a channel survives a large mean", "[quick][cuda]") {
  // A mean of 10^4 deviations: Σx² - (Σx)²/n would have no correct digit left in float32.
  std::vector<float> numbers(2 * 14400);
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = 5000 + static_cast<float>(i * 7919 % 1024) / 1024;
  const Tensor x = tensor(numbers, {16, 2, 30, 30});
  const Tensor exact = to(x, DType::Float64);
  const Tensor mean = empty({2}, {.dtype = DType::Float64});
  const Tensor var = empty_like(mean);
  kernels::batch_norm_stats(mean, var, exact);
  for (const Device device : devices()) {
    INFO(device);
    const Tensor device_mean = empty({2}, {.device = device});
    const Tensor device_var = empty_like(device_mean);
    kernels::batch_norm_stats(device_mean, device_var, to(x, device));
    CHECK(difference(device_var, to_vector<double>(var), {DType::Float32, 14400}) == "");
  }
}

}  // namespace ringgrad::test::any_device_kernels_test
