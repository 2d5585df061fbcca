// The four batch normalisation kernels on the CPU against their formulas in double, in both layouts.
#include <limits>

#include "tests/cpu_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

constexpr double kEps = 1e-5;

Tensor in_layout(const Tensor& x, Layout layout) {
  const Tensor y = empty(x.shape(), {.dtype = x.dtype(), .layout = layout});
  kernels::copy(y, x);
  return y;
}
Tensor random_image(const Shape& shape, DType dtype, Layout layout, uint32_t seed, double low = -1, double high = 1) {
  return in_layout(random_tensor(shape, dtype, seed, low, high), layout);
}

// The channel of element i of x [N, C, …] in row-major order.
struct Channels {
  int64_t channels, plane, count;
  explicit Channels(const Tensor& x) : channels(x.size(1)), plane(1), count(0) {
    for (int d = 2; d < x.dim(); ++d) plane *= x.size(d);
    count = x.size(0) * plane;
  }
  int64_t operator()(size_t i) const { return static_cast<int64_t>(i) / plane % channels; }
};

DType sum_dtype(DType dtype) { return dtype == DType::Float64 ? dtype : DType::Float32; }

// What lies beyond C in the last block of a channel-blocked tensor is zero.
bool has_zero_padding(const Tensor& x) {
  if (x.layout() != Layout::ChannelBlocked || x.dtype() != DType::Float32) return true;
  const int64_t blocks = (x.size(1) + kChannelBlock - 1) / kChannelBlock;
  const float* data = x.data<float>();
  for (int64_t i = 0; i < x.flat_numel(); ++i) {
    const int64_t block = i / (kChannelBlock * x.size(2) * x.size(3)) % blocks;
    if (block * kChannelBlock + i % kChannelBlock >= x.size(1) && data[i] != 0) return false;
  }
  return true;
}

void check_batch_norm(const Shape& shape, DType dtype, Layout layout, bool with_residual, bool relu) {
  INFO(shape << " " << dtype << " layout " << static_cast<int>(layout) << " residual " << with_residual << " relu "
             << relu);
  const TensorOptions per_channel{.dtype = sum_dtype(dtype)};
  const double tolerance = 4 * sum_tolerance(dtype, 64);
  const Tensor x = random_image(shape, dtype, layout, 1, 2, 4);
  const Channels channel(x);
  const int64_t channels = channel.channels, count = channel.count;
  const std::vector<double> vx = values(x);

  const Tensor mean = empty({channels}, per_channel), var = empty({channels}, per_channel);
  kernels::batch_norm_stats(mean, var, x);
  std::vector<double> m(channels), v(channels), rstd(channels);
  for (size_t i = 0; i < vx.size(); ++i) m[channel(i)] += vx[i] / count;
  for (size_t i = 0; i < vx.size(); ++i) v[channel(i)] += (vx[i] - m[channel(i)]) * (vx[i] - m[channel(i)]) / count;
  for (int64_t c = 0; c < channels; ++c) rstd[c] = 1 / std::sqrt(v[c] + kEps);
  require_close(mean, m, tolerance);
  require_close(var, v, tolerance);

  const Tensor weight = random_tensor({channels}, per_channel.dtype, 2),
               bias = random_tensor({channels}, per_channel.dtype, 3);
  const Tensor residual = with_residual ? random_image(shape, dtype, layout, 4) : Tensor();
  const std::vector<double> w = values(weight), b = values(bias);
  std::vector<double> expected = with_residual ? values(residual) : std::vector<double>(vx.size());
  for (size_t i = 0; i < vx.size(); ++i) {
    const int64_t c = channel(i);
    expected[i] += w[c] * (vx[i] - m[c]) * rstd[c] + b[c];
    if (relu && expected[i] < 0) expected[i] = 0;
  }
  const Tensor y = empty(shape, {.dtype = dtype, .layout = layout});
  kernels::batch_norm_apply(y, x, mean, var, weight, bias, residual, kEps, relu);
  require_close(y, expected, tolerance);
  REQUIRE(has_zero_padding(y));

  const Tensor dy = random_image(shape, dtype, layout, 5), saved = relu ? y : Tensor();
  const std::vector<double> vy = values(y);
  std::vector<double> g = values(dy), sum_g(channels), sum_g_xhat(channels);
  for (size_t i = 0; i < g.size(); ++i) {
    if (relu && vy[i] <= 0) g[i] = 0;
    sum_g[channel(i)] += g[i];
    sum_g_xhat[channel(i)] += g[i] * (vx[i] - m[channel(i)]) * rstd[channel(i)];
  }
  const Tensor sum_dy = empty({channels}, per_channel), sum_dy_xhat = empty({channels}, per_channel);
  kernels::batch_norm_backward_reduce(sum_dy, sum_dy_xhat, dy, x, saved, mean, var, kEps);
  require_close(sum_dy, sum_g, tolerance * std::sqrt(count));
  require_close(sum_dy_xhat, sum_g_xhat, tolerance * std::sqrt(count));

  for (double divisor : {static_cast<double>(count), std::numeric_limits<double>::infinity()}) {
    std::vector<double> expected_dx(vx.size());
    for (size_t i = 0; i < vx.size(); ++i) {
      const int64_t c = channel(i);
      const double xhat = (vx[i] - m[c]) * rstd[c];
      expected_dx[i] = w[c] * rstd[c] * (g[i] - sum_g[c] / divisor - xhat * sum_g_xhat[c] / divisor);
    }
    const Tensor dx = empty(shape, {.dtype = dtype, .layout = layout});
    const Tensor branch = with_residual ? empty(shape, {.dtype = dtype, .layout = layout}) : Tensor();
    kernels::batch_norm_backward_apply(dx, branch, dy, x, saved, mean, var, weight, sum_dy, sum_dy_xhat, kEps, divisor);
    require_close(dx, expected_dx, tolerance);
    REQUIRE(has_zero_padding(dx));
    if (with_residual) require_close(branch, g, 0);
  }
}

}  // namespace

TEST_CASE("batch norm forward and backward", "[quick][cpu]") {
  for (DType dtype : kFloating)
    for (Layout layout : {Layout::Strided, Layout::ChannelBlocked})
      for (int flags = 0; flags < 4; ++flags) check_batch_norm({3, 21, 5, 7}, dtype, layout, flags & 1, flags & 2);
}

TEST_CASE("batch norm of planes of several pieces, and of single pixels", "[quick][cpu]") {
  for (Layout layout : {Layout::Strided, Layout::ChannelBlocked}) {
    check_batch_norm({2, 3, 53, 47}, DType::Float32, layout, true, true);
    check_batch_norm({40, 70, 1, 1}, DType::Float32, layout, false, true);
    check_batch_norm({5, 16, 16, 16}, DType::Float32, layout, false, false);
  }
  check_batch_norm({33, 9}, DType::Float64, Layout::Strided, false, false);
  check_batch_norm({3, 4, 50}, DType::Float32, Layout::Strided, false, false);
}

TEST_CASE("batch norm variance survives a large mean", "[quick][cpu]") {
  // A mean of 10^4 deviations: Σx² - (Σx)²/n would have no correct digit left in float32.
  const Tensor x = random_tensor({16, 2, 30, 30}, DType::Float32, 6, 5000, 5001);
  const Tensor mean = empty({2}), var = empty({2});
  kernels::batch_norm_stats(mean, var, x);
  const std::vector<double> vx = values(x);
  const Channels channel(x);
  std::vector<double> m(2), v(2);
  for (size_t i = 0; i < vx.size(); ++i) m[channel(i)] += vx[i] / channel.count;
  for (size_t i = 0; i < vx.size(); ++i) v[channel(i)] += std::pow(vx[i] - m[channel(i)], 2) / channel.count;
  require_close(var, v, 1e-5);
}

TEST_CASE("batch norm without weight and bias", "[quick][cpu]") {
  const Tensor x = random_tensor({4, 3, 5, 5}, DType::Float32, 7), mean = empty({3}), var = empty({3});
  const Tensor y = empty(x.shape()), expected = empty(x.shape());
  kernels::batch_norm_stats(mean, var, x);
  kernels::batch_norm_apply(y, x, mean, var, {}, {}, {}, kEps, false);
  kernels::batch_norm_apply(expected, x, mean, var, ones({3}), zeros({3}), {}, kEps, false);
  require_close(y, values(expected), 0);
}

TEST_CASE("batch norm does not depend on the number of threads", "[quick][threads][cpu]") {
  for (Layout layout : {Layout::Strided, Layout::ChannelBlocked}) {
    const Shape shape{19, 16, 33, 35};
    const Tensor x = random_image(shape, DType::Float32, layout, 8),
                 dy = random_image(shape, DType::Float32, layout, 9);
    require_same_on_any_threads([&] {
      const Tensor mean = empty({16}), var = empty({16}), sum_dy = empty({16}), sum_dy_xhat = empty({16});
      const Tensor y = empty(shape, x.options()), dx = empty(shape, x.options());
      kernels::batch_norm_stats(mean, var, x);
      kernels::batch_norm_apply(y, x, mean, var, {}, {}, {}, kEps, true);
      kernels::batch_norm_backward_reduce(sum_dy, sum_dy_xhat, dy, x, y, mean, var, kEps);
      kernels::batch_norm_backward_apply(dx, {}, dy, x, y, mean, var, {}, sum_dy, sum_dy_xhat, kEps, 19 * 33 * 35);
      return std::vector<Tensor>{mean, var, y, sum_dy, sum_dy_xhat, dx};
    });
  }
}
