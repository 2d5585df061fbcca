// Tests of CUDA kernels that the rows of tests/kernels/op_specs*.cpp do not reach.
#include "ringgrad/tests/cuda/cuda_kernels.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/conv_plan.h"

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/cuda_kernels/runtime/deviations.h"

namespace ringgrad::test::cuda_kernels_test {

// tests/kernels/op_test.cpp says the same of the CPU.
TEST_CASE("cuda: every kernel of the contract has an implementation", "[quick][cuda]") {
  for (const KernelBase* kernel = first_kernel(); kernel; kernel = kernel->next()) {
    INFO(kernel->name());
    CHECK(kernel->has(DeviceType::CUDA, Provider::Native));
  }
}

TEST_CASE("cuda: places count from either end", "[quick][cuda]") {
  const Device cuda = DeviceType::CUDA;
  const Tensor x = tensor<int64_t>({5, 6, 7, 8}, cuda);
  const Tensor found = x.index({tensor<int64_t>({0, -1, 1, -4, 3}, cuda)});
  CHECK(to_vector<int64_t>(found) == std::vector<int64_t>{5, 8, 6, 5, 8});
}

namespace {

// The same values from an address that is aligned for one element only.
Tensor unaligned(const Tensor& x) {
  const Tensor longer = empty({x.numel() + 1}, {.dtype = x.dtype()});
  const Tensor view = longer.as_strided(x.shape(), contiguous_strides(x.shape()), 1);
  kernels::copy(view, x);
  return view;
}

}  // namespace

TEST_CASE("cuda: unaligned operands, and in place", "[quick][cuda]") {
  for (DType dtype : kFloating) {
    const double tolerance = 2 * epsilon(dtype);
    const Tensor a = random_tensor({7, 37}, dtype, 1);
    const Tensor b = random_tensor({7, 37}, dtype, 2);
    std::vector<double> sum = values(a);
    const std::vector<double> added = values(b);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += added[i];
    for (const bool shift_x : {false, true})
      for (const bool shift_y : {false, true}) {
        INFO(dtype << ", unaligned: " << shift_x << " " << shift_y);
        const Tensor x = to_device(shift_x ? unaligned(a) : a);
        const Tensor y = to_device(shift_y ? unaligned(b) : b);
        REQUIRE((reinterpret_cast<uintptr_t>(x.raw_data()) % 16 != 0) == shift_x);
        REQUIRE((reinterpret_cast<uintptr_t>(y.raw_data()) % 16 != 0) == shift_y);
        kernels::add(x, x, y);
        require_close(x, sum, tolerance);
        kernels::fill(x, 0.3);  // which no dtype holds exactly
        require_close(x, std::vector<double>(sum.size(), 0.3), tolerance);
      }
  }
}

// There are more long rows than blocks, so each block reduces one after another, in the same shared
// memory.
TEST_CASE("cuda: blocks that go over several rows", "[quick][cuda]") {
  const int64_t n = 33 * 3 + 11;
  const int64_t c = 1100;
  const Tensor x = random_tensor({n, c}, DType::Float32, 20);
  const Tensor y = empty_like(x);
  const Tensor device_y = empty_like(to_device(x));
  kernels::softmax(y, x);
  kernels::softmax(device_y, to_device(x));
  // The bound is for two softmaxes in float32. An exponential is within 2 units in the last place,
  // and its argument, a difference below 2, was rounded before. The sum has terms of one sign, and
  // the quotient is rounded.
  std::vector<double> bounds = values(y);
  for (double& bound : bounds) bound *= 2 * gamma_of(c + 2 * (4 + 2) + 1, DType::Float32);
  require_within(device_y, values(y), bounds);
  const Tensor rows = x.as_strided({n, c, 1}, {c, 1, 1}, 0);
  const Tensor device_rows = to_device(rows);
  const Tensor best = empty({n, 1});
  const Tensor place = empty({n, 1}, {.dtype = DType::Int64});
  const Tensor device_best = to_device(best);
  const Tensor device_place = to_device(place);
  kernels::max(best, place, rows);
  kernels::max(device_best, device_place, device_rows);
  require_close(device_best, values(best), 0);
  REQUIRE(values(device_place) == values(place));
}

TEST_CASE("cuda: copies between host and device, devices, strides and layouts", "[quick][cuda]") {
  const Tensor image = random_tensor({2, 19, 3, 5}, DType::Float32, 13);
  const std::vector<double> expected = values(image);
  const Tensor blocked = empty(image.shape(), {.layout = Layout::ChannelBlocked});
  const Tensor channels_last = empty(image.shape(), {.layout = Layout::ChannelsLast});
  kernels::copy(blocked, image);
  kernels::copy(channels_last, image);
  const Device other = another_device();
  for (const Tensor& source : {image, blocked, channels_last})
    for (const Layout layout : {Layout::Strided, Layout::ChannelBlocked})
      for (const DType dtype : {DType::Float32, DType::Float64}) {
        const Tensor first = empty(image.shape(), {dtype, Device("cuda:0"), layout});
        const Tensor second = empty(image.shape(), {dtype, other, layout});
        const Tensor second_last =
            empty(image.shape(), {.device = other, .layout = Layout::ChannelsLast});
        const Tensor back = empty(image.shape(), {.dtype = dtype});
        copy_(first, source);  // host to device
        // From device to device, if there are two, with other strides and dtypes.
        copy_(second_last, first);
        copy_(second, second_last);  // on one device
        copy_(back, second);         // device to host
        REQUIRE(values(back) == expected);
        if (layout == Layout::ChannelBlocked) {  // the padding holds zeros
          const Tensor raw(second.storage(), {second.flat_numel()}, {1}, second.storage_offset(),
                           dtype);
          double sum = 0;
          for (double value : values(raw)) sum += value;
          double wanted = 0;
          for (double value : expected) wanted += value;
          REQUIRE(std::abs(sum - wanted) <=
                  2 * gamma_of(image.numel(), DType::Float64) * image.numel());
        }
      }
}

TEST_CASE("cuda: variances of what cuDNN keeps, and back, with the running statistics",
          "[quick][cuda]") {
  constexpr int64_t kChannels = 700;
  constexpr double kEps = 1e-5;
  constexpr double kMomentum = 0.1;
  constexpr double kCount = 8;
  const Device device("cuda");
  const Stream stream = current_stream(device);
  manual_seed(1);
  const auto numbers = [&] { return to(rand({kChannels}), device); };
  const Tensor mean = numbers();
  const Tensor var = add(numbers(), 0.01);
  const Tensor running_mean = numbers();
  const Tensor running_var = numbers();
  const Tensor batches = full({}, 7, {DType::Int64, device});
  const Tensor rstd = empty_like(var);
  const auto values = [](const Tensor& x) { return to_vector<double>(x); };
  const auto means = values(mean);
  const auto vars = values(var);
  const auto means_before = values(running_mean);
  const auto vars_before = values(running_var);
  cuda::rstd_of(stream, rstd, var, kEps);
  const auto rstds = values(rstd);
  cuda::variances_of(stream, rstd, mean, kEps, {running_mean, running_var, batches, kMomentum},
                     kCount);
  const auto back = values(rstd);
  const auto means_after = values(running_mean);
  const auto vars_after = values(running_var);
  constexpr double kRounding = 8 * 0x1p-24;
  for (size_t c = 0; c < kChannels; ++c) {
    CHECK(std::abs(rstds[c] * std::sqrt(vars[c] + kEps) - 1) < kRounding);
    CHECK(std::abs(back[c] / vars[c] - 1) < kRounding);
    CHECK(std::abs(means_after[c] - (0.9 * means_before[c] + 0.1 * means[c])) < kRounding);
    CHECK(std::abs(vars_after[c] - (0.9 * vars_before[c] + 0.1 * vars[c] * 8 / 7)) < kRounding);
  }
  CHECK(to_vector<int64_t>(batches) == std::vector<int64_t>{8});
  cuda::variances_of(stream, rstd, mean, kEps, {}, kCount);  // nothing is kept
}

// Forward writes a bit for each output, and backward reads it in place of the output. Both give the
// same bits of every gradient.
TEST_CASE("cuda: batch norm's gradients by the bits of its output", "[quick][cuda]") {
  const ScheduleGuard schedule(GENERATE(Schedule::Forward, Schedule::Reversed));
  const ProviderGuard ours(Provider::Native);
  const Device device(DeviceType::CUDA);
  for (const DType dtype : {DType::BFloat16, DType::Float16})
    for (const Layout layout : {Layout::Strided, Layout::ChannelsLast})
      for (const bool with_residual : {false, true})
        for (const int64_t offset : {0, 1}) {  // begins a vector, or not
          const Shape shape{3, 24, 4, 6};
          INFO(dtype << (layout == Layout::ChannelsLast ? " NHWC" : " NCHW") << ", residual "
                     << with_residual << ", offset " << offset);
          const auto images = [&](uint64_t seed) {
            const Tensor plain = empty(shape, {dtype, device, layout});
            const Tensor x = Tensor(empty({plain.numel() + 8}, {dtype, device}).storage(), shape,
                                    plain.strides(), offset, dtype, false);
            kernels::copy(x, to_device(random_tensor(shape, dtype, seed)));
            return x;
          };
          const Tensor x = images(1);
          const Tensor dy = images(2);
          const Tensor residual = with_residual ? images(3) : Tensor();
          const Tensor y = images(4);
          const auto channel = [&](uint64_t seed, double low) {
            return to_device(random_tensor({24}, DType::Float32, seed, low, 1));
          };
          const Tensor mean = channel(5, -0.1);
          const Tensor var = channel(6, 0.5);
          const Tensor weight = channel(7, -1);
          const Tensor bias = channel(8, -0.3);
          const Tensor positive =
              layout_policy(device).batch_norm_positive(empty(shape, {dtype, device, layout}));
          REQUIRE(positive);
          REQUIRE(positive.numel() * 8 == x.numel());
          kernels::batch_norm_apply(y, positive, x, mean, var, weight, bias, residual, 1e-5, true);
          const auto backward = [&](const Tensor& gate) {
            std::vector<Tensor> made{empty_like(mean), empty_like(mean), images(9),
                                     with_residual ? images(10) : Tensor()};
            kernels::batch_norm_backward_reduce(made[0], made[1], dy, x, gate, mean, var, 1e-5);
            kernels::batch_norm_backward_apply(made[2], made[3], dy, x, gate, mean, var, weight,
                                               made[0], made[1], 1e-5, 72);
            return made;
          };
          const std::vector<Tensor> by_output = backward(y);
          const std::vector<Tensor> by_bits = backward(positive);
          for (size_t i = 0; i < by_bits.size(); ++i)
            if (by_bits[i]) REQUIRE(values(by_bits[i]) == values(by_output[i]));
        }
  // cuDNN's kernels have no bits, nor do vectors that end within a byte.
  const Tensor odd = empty_on_device({2, 12, 3, 3}, DType::BFloat16);
  REQUIRE(!layout_policy(device).batch_norm_positive(odd));
  const ProviderGuard vendor(Provider::Vendor);
  REQUIRE(
      !layout_policy(device).batch_norm_positive(empty_on_device({2, 16, 4, 4}, DType::BFloat16)));
}

}  // namespace ringgrad::test::cuda_kernels_test
