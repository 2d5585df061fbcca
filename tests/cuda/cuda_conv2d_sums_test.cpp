// Convolutions on Hopper that also sum for the batch norm beside them. The results have the bits of
// those that do not. The sums are those of the results as they are stored.
#include "ringgrad/autograd/conv_batch_norm.h"
#include "ringgrad/core/kernels/kernel_profile.h"
#include "ringgrad/cuda_kernels/hopper/conv2d.h"
#include "ringgrad/cuda_kernels/ladders.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/tests/cuda/conv2d_case.h"
#include "ringgrad/tests/kernels/fusion_guard.h"

namespace ringgrad::test::cuda_conv2d_sums_test {

namespace {

constexpr double kEps = 1e-5;

bool needs_hopper() {
  if (cuda::compute_capability_major(Device(DeviceType::CUDA)) == 9) return false;
  WARN("skipped: needs a Hopper GPU");
  return true;
}

Tensor on_device(const Shape& shape, DType dtype) {
  return empty(shape, {dtype, Device(DeviceType::CUDA), Layout::ChannelsLast});
}
Tensor images(const Shape& shape, DType dtype, uint32_t seed, double low = -1, double high = 1) {
  return to_device(in_layout(random_tensor(shape, dtype, seed, low, high), true));
}

// The elements of each channel of x [N, C, H, W].
std::vector<std::vector<double>> by_channel(const Tensor& x) {
  const std::vector<double> all = values(x);
  const auto C = static_cast<size_t>(x.size(1));
  const auto pixels = static_cast<size_t>(x.size(2) * x.size(3));
  std::vector<std::vector<double>> channels(C);
  for (size_t i = 0; i < all.size(); ++i) channels[i / pixels % C].push_back(all[i]);
  return channels;
}

// Two passes over 16 numbers, and Chan's formulas: the mean is off by d at most, and so is each
// distance of two means. An error of the squares is that of their sum, and 2 d times a deviation.
void require_moments(const Tensor& y, const Tensor& mean, const Tensor& var) {
  std::vector<double> means;
  std::vector<double> variances;
  std::vector<double> mean_bounds;
  std::vector<double> var_bounds;
  for (const std::vector<double>& channel : by_channel(y)) {
    const auto n = static_cast<double>(channel.size());
    double sum = 0;
    double magnitude = 0;
    for (double value : channel) {
      sum += value;
      magnitude = std::max(magnitude, std::abs(value));
    }
    double squares = 0;
    for (double value : channel) squares += (value - sum / n) * (value - sum / n);
    const double relative = gamma_of(static_cast<int64_t>(n) + 8, DType::Float32);
    const double d = relative * magnitude;
    means.push_back(sum / n);
    variances.push_back(squares / n);
    mean_bounds.push_back(d);
    var_bounds.push_back(relative * squares / n + 2 * d * std::sqrt(squares / n) + d * d);
  }
  require_within(mean, means, mean_bounds);
  require_within(var, variances, var_bounds);
}

// With `apart` the values of a channel of y lie within 1 of each other and near 1000. A variance by
// sums of squares would be off by ten times the bound.
void check_moments(const ConvCase& c, DType dtype, bool apart = false) {
  if (needs_hopper()) return;
  INFO("x " << c.x << ", w " << c.w << ", " << dtype);
  const Tensor x = images(c.x, dtype, 1, apart ? 3.9 : -1, apart ? 4 : 1);
  const Tensor w = images(c.w, dtype, 2, apart ? 3.9 : -1, apart ? 4 : 1);
  const Tensor alone = on_device(c.y(), dtype);
  cuda::conv2d(cuda::ConvStep::Hopper, current_stream(x.device()), alone, x, w, {}, c.options);
  const int64_t K = c.w[0];
  std::vector<std::vector<double>> runs;
  for (const Schedule schedule : {Schedule::Forward, Schedule::Reversed}) {
    const ScheduleGuard guard(schedule);
    const ProviderGuard ours(Provider::Native);
    const Tensor y = on_device(c.y(), dtype);
    const Tensor mean = empty_on_device({K}, DType::Float32);
    const Tensor var = empty_on_device({K}, DType::Float32);
    const Tensor running_mean = to_device(random_tensor({K}, DType::Float32, 3));
    const Tensor running_var = to_device(random_tensor({K}, DType::Float32, 4, 1, 2));
    const Tensor batches = to_device(zeros({}, {.dtype = DType::Int64}));
    kernels::conv2d_batch_stats(y, mean, var, x, w, c.options,
                                {running_mean, running_var, batches, 0.25});
    REQUIRE(values(y) == values(alone));
    require_moments(y, mean, var);
    const double n = static_cast<double>(y.numel()) / static_cast<double>(K);
    std::vector<double> means = values(random_tensor({K}, DType::Float32, 3));
    std::vector<double> variances = values(random_tensor({K}, DType::Float32, 4, 1, 2));
    const std::vector<double> of_batch = values(mean);
    const std::vector<double> var_of_batch = values(var);
    for (size_t k = 0; k < means.size(); ++k) {
      means[k] = 0.75 * means[k] + 0.25 * of_batch[k];
      variances[k] = 0.75 * variances[k] + 0.25 * var_of_batch[k] * n / (n - 1);
    }
    require_close(running_mean, means, 0x1p-21);
    require_close(running_var, variances, 0x1p-21);
    REQUIRE(values(batches)[0] == 1);
    runs.push_back(values(mean));
    runs.push_back(values(var));
  }
  REQUIRE(runs[0] == runs[2]);
  REQUIRE(runs[1] == runs[3]);
}

// The gradient of images that are a batch norm's output, with the shortcut's gradient added.
void check_gradient(const ConvCase& c, DType dtype, bool relu = true) {
  if (needs_hopper()) return;
  INFO("x " << c.x << ", w " << c.w << ", stride " << c.options.stride.h << ", " << dtype);
  const Tensor dy = images(c.y(), dtype, 1);
  const Tensor w = images(c.w, dtype, 2);
  const Tensor addend = images(c.x, dtype, 3);
  const Tensor x = images(c.x, dtype, 4, 2, 4);
  const int64_t C = c.x[1];
  const Tensor mean = to_device(random_tensor({C}, DType::Float32, 5, 2, 4));
  const Tensor var = to_device(random_tensor({C}, DType::Float32, 6, 1, 2));
  // The bits of a batch norm of other numbers.
  const Tensor before = images(c.x, dtype, 7);
  const Tensor positive = layout_policy(before.device()).batch_norm_positive(before);
  const Tensor none = to_device(zeros({C}));
  const Tensor y = on_device(c.x, dtype);
  kernels::batch_norm_apply(y, positive, before, none, to_device(ones({C})), {}, {}, {}, kEps,
                            true);

  REQUIRE(cuda::hopper_conv({.pass = ConvPass::BackwardInput,
                             .dtype = dtype,
                             .x = c.x,
                             .w = c.w,
                             .options = c.options}) != cuda::HopperConv::None);
  const Tensor alone = on_device(c.x, dtype);
  cuda::conv2d_backward_input(cuda::ConvStep::Hopper, current_stream(x.device()), alone, dy, w,
                              addend, c.options);
  std::vector<double> expected = values(alone);
  const std::vector<double> rectified = values(y);
  if (relu)
    for (size_t i = 0; i < expected.size(); ++i)
      if (!(rectified[i] > 0)) expected[i] = 0;

  std::vector<std::vector<double>> runs;
  for (const Schedule schedule : {Schedule::Forward, Schedule::Reversed}) {
    const ScheduleGuard guard(schedule);
    const Tensor g = on_device(c.x, dtype);
    const Tensor sum_dy = empty_on_device({C}, DType::Float32);
    const Tensor sum_dy_xhat = empty_on_device({C}, DType::Float32);
    kernels::conv2d_backward_batch_sums(g, sum_dy, sum_dy_xhat, dy, w, addend, x,
                                        relu ? positive : Tensor(), mean, var, kEps, c.options);
    REQUIRE(values(g) == expected);
    std::vector<double> sums;
    std::vector<double> products;
    std::vector<double> bounds;
    std::vector<double> product_bounds;
    const auto of_g = by_channel(g);
    const auto of_x = by_channel(x);
    const std::vector<double> means = values(mean);
    const std::vector<double> variances = values(var);
    for (size_t k = 0; k < of_g.size(); ++k) {
      const double rstd = 1 / std::sqrt(variances[k] + kEps);
      double sum = 0;
      double product = 0;
      double magnitude = 0;
      double product_magnitude = 0;
      for (size_t i = 0; i < of_g[k].size(); ++i) {
        const double apart = of_x[k][i] - means[k];
        sum += of_g[k][i];
        magnitude += std::abs(of_g[k][i]);
        product += of_g[k][i] * apart * rstd;
        product_magnitude += std::abs(of_g[k][i] * apart * rstd);
      }
      const double relative = gamma_of(static_cast<int64_t>(of_g[k].size()) + 8, DType::Float32);
      sums.push_back(sum);
      products.push_back(product);
      bounds.push_back(relative * magnitude);
      product_bounds.push_back(relative * product_magnitude);
    }
    require_within(sum_dy, sums, bounds);
    require_within(sum_dy_xhat, products, product_bounds);
    runs.push_back(values(sum_dy));
    runs.push_back(values(sum_dy_xhat));
  }
  REQUIRE(runs[0] == runs[2]);
  REQUIRE(runs[1] == runs[3]);
}

const Conv2dOptions same{.padding = 1};

}  // namespace

TEST_CASE("cuda: the moments of a convolution's results, of border tiles", "[quick][cuda]") {
  check_moments({{1, 64, 16, 32}, {64, 64, 3, 3}, same}, DType::BFloat16);
  check_moments({{3, 64, 9, 19}, {64, 64, 3, 3}, same}, DType::Float16);
  check_moments({{1, 128, 16, 16}, {128, 128, 3, 3}, same}, DType::BFloat16);
  check_moments({{1, 64, 8, 17}, {64, 64, 3, 3}, same}, DType::BFloat16);
}

TEST_CASE("cuda: the moments of a convolution's results, of patches", "[quick][cuda]") {
  // tails of pixels and channels; one, two and four slices of channels; several tiles of channels
  check_moments({{2, 8, 9, 11}, {40, 8, 3, 3}, same}, DType::Float16);
  check_moments({{2, 24, 12, 13}, {136, 24, 3, 3}, {.stride = 2, .padding = 1}}, DType::BFloat16);
  check_moments({{3, 16, 9, 11}, {520, 16, 1, 1}, {}}, DType::Float16);
  check_moments({{2, 64, 9, 11}, {128, 64, 1, 1}, {}}, DType::Float16, true);
}

TEST_CASE("cuda: the sums of a rectified gradient, of border tiles", "[quick][cuda]") {
  check_gradient({{1, 64, 16, 32}, {64, 64, 3, 3}, same}, DType::BFloat16);
  check_gradient({{3, 64, 9, 19}, {64, 64, 3, 3}, same}, DType::Float16);
  check_gradient({{2, 128, 17, 11}, {128, 128, 3, 3}, same}, DType::BFloat16);
  check_gradient({{1, 64, 8, 17}, {64, 64, 3, 3}, same}, DType::BFloat16, false);
}

TEST_CASE("cuda: the sums of a rectified gradient, of patches", "[quick][cuda]") {
  check_gradient({{2, 40, 9, 11}, {8, 40, 3, 3}, same}, DType::Float16);
  check_gradient({{2, 136, 9, 7}, {24, 136, 3, 3}, same}, DType::BFloat16);
  check_gradient({{3, 520, 5, 7}, {16, 520, 1, 1}, {}}, DType::Float16);
  // four parities, of which one has all pixels, and a stride in one dimension only
  check_gradient({{3, 64, 8, 8}, {72, 64, 3, 3}, {.stride = 2, .padding = 1}}, DType::BFloat16);
  check_gradient({{2, 16, 4, 16}, {24, 16, 3, 3}, {.stride = {1, 2}, .padding = 1}},
                 DType::BFloat16);
}

namespace {

// A residual block's gradients, and how many kernels summed them.
std::pair<std::vector<std::vector<double>>, int> block_gradients(Fusion fusion) {
  const FusionGuard guard(fusion, fusion);
  const ProviderGuard ours(Provider::Native);
  const auto leaf = [](const Shape& shape, uint32_t seed) {
    return Tensor(to_device(random_tensor(shape, DType::Float32, seed))).set_requires_grad();
  };
  const KernelProfile profile;
  Tensor y = images({2, 64, 9, 19}, DType::BFloat16, 1);
  const Tensor shortcut = y;
  std::vector<Tensor> leaves;
  for (uint32_t layer = 0; layer < 3; ++layer) {
    const Tensor w = leaf({64, 64, 3, 3}, 10 * layer + 2);
    const Tensor weight = leaf({64}, 10 * layer + 3);
    const Tensor bias = leaf({64}, 10 * layer + 4);
    leaves.insert(leaves.end(), {w, weight, bias});
    y = conv2d_batch_norm(
        y, w, {weight, bias}, same,
        {.activation = Activation::Relu, .residual = layer == 2 ? shortcut : Tensor()});
  }
  y.backward(images(y.shape(), DType::BFloat16, 5));
  std::vector<std::vector<double>> gradients;
  for (const Tensor& t : leaves) gradients.push_back(values(t.grad()));
  int summed = 0;
  for (const KernelCall& call : profile.calls())
    summed += std::string(call.kernel) == "conv2d_backward_batch_sums";
  return {gradients, summed};
}

}  // namespace

// The statistics are added in another order, so numbers of 16 bits may be rounded otherwise, by
// 2^-8 of themselves. Over some ten passes over the images that is four times as much.
TEST_CASE("cuda: a block's gradients with sums in its convolutions", "[quick][cuda]") {
  const auto [fused, summed] = block_gradients(Fusion::Always);
  const auto [apart, none] = block_gradients(Fusion::Never);
  CHECK(summed == 2);
  CHECK(none == 0);
  const bool equal = block_gradients(Fusion::Always).first == fused;  // thousands of numbers
  CHECK(equal);
  for (size_t i = 0; i < fused.size(); ++i) {
    double error = 0;
    double size = 0;
    for (size_t j = 0; j < fused[i].size(); ++j) {
      error += (fused[i][j] - apart[i][j]) * (fused[i][j] - apart[i][j]);
      size += apart[i][j] * apart[i][j];
    }
    INFO("gradient " << i << ": " << std::sqrt(error / size));
    CHECK(std::sqrt(error) <= 4 * 0x1p-8 * std::sqrt(size));
    CHECK(size > 0);
  }
}

// Then timing decides whether the shortcut's gradient has arrived, so it is added afterwards, and
// sums of a part would be of no use.
TEST_CASE("cuda: with two devices a gradient is summed where nothing is added", "[quick][cuda]") {
  const auto gradients = [](Fusion fusion, int expected) {
    const FusionGuard guard(Fusion::Always, fusion);
    const auto leaf = [](const Shape& shape, uint32_t seed) {
      return Tensor(random_tensor(shape, DType::Float32, seed)).set_requires_grad();
    };
    const Tensor w = leaf({16, 16, 3, 3}, 1);
    const Tensor weight = leaf({16}, 2);
    const auto layer = [&](const Tensor& x, const Tensor& residual) {
      return conv2d_batch_norm(x, w, {weight}, same,
                               {.activation = Activation::Relu, .residual = residual});
    };
    const Tensor y = layer(random_tensor({2, 16, 5, 6}, DType::Float32, 3), {});
    const Tensor z = layer(layer(y, {}), y);
    const KernelProfile profile;
    add(sum(z), to(sum(to(z, Device(DeviceType::CUDA))), Device())).backward();
    int summed = 0;
    for (const KernelCall& call : profile.calls())
      summed += std::string(call.kernel) == "conv2d_backward_batch_sums";
    CHECK(summed == expected);
    return std::pair(values(w.grad()), values(weight.grad()));
  };
  CHECK(gradients(Fusion::Always, 1) == gradients(Fusion::Never, 0));
}

// More tiles than blocks: a block adds several.
TEST_CASE("cuda: sums of many tiles", "[cuda]") {
  check_moments({{140, 64, 1, 17}, {64, 64, 3, 3}, same}, DType::BFloat16);
  check_gradient({{280, 136, 8, 8}, {8, 136, 1, 1}, {}}, DType::BFloat16);
}

}  // namespace ringgrad::test::cuda_conv2d_sums_test
