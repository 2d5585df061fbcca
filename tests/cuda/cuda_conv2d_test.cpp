// The CUDA convolutions, each step and each gradient, against the CPU's in double.
#include "ringgrad/cuda_kernels/ladders.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/tests/cuda/conv2d_case.h"

namespace ringgrad::test::cuda_conv2d_test {
using cuda::ConvStep;

namespace {

void check(ConvStep step, const ConvCase& c, DType dtype, bool channels_last) {
  const Shape y_shape = c.y();
  const Tensor x = in_layout(random_tensor(c.x, dtype, 1), channels_last);
  const Tensor w = in_layout(random_tensor(c.w, dtype, 2), channels_last);
  const Tensor dy = in_layout(random_tensor(y_shape, dtype, 3), channels_last);
  const Tensor bias = random_tensor({c.w[0]}, dtype, 4);
  const ConvResults expected = by_cpu(c, x, w, bias, dy);
  const ConvResults magnitudes = by_cpu(c, absolute(x), absolute(w), absolute(bias), absolute(dy));
  const ConvTerms terms = terms_of(c);
  INFO(cuda::name(step) << " x " << c.x << ", w " << c.w << ", stride " << c.options.stride.h
                        << ", padding " << c.options.padding.h << ", groups " << c.options.groups
                        << ", " << dtype << (channels_last ? ", NHWC" : ", NCHW"));
  const Tensor device_x = to_device(x);
  const Tensor device_w = to_device(w);
  const Tensor device_dy = to_device(dy);
  const Stream stream = current_stream(device_x.device());
  // All have the right layout.
  const Tensor out = to_device(dy);
  const Tensor out_dx = to_device(x);
  const Tensor out_dw = to_device(w);
  REQUIRE(cuda::supports(step, device_x, device_w, device_dy, c.options));
  cuda::conv2d(step, stream, out, device_x, device_w, to_device(bias), c.options);
  require_within(out, expected.y, sum_bounds(dtype, terms.y, magnitudes.y));
  cuda::conv2d_backward_input(step, stream, out_dx, device_dy, device_w, device_x, c.options);
  require_within(out_dx, expected.dx, sum_bounds(dtype, terms.dx, magnitudes.dx));
  cuda::conv2d_backward_weight(step, stream, out_dw, device_dy, device_x, c.options);
  require_within(out_dw, expected.dw, sum_bounds(dtype, terms.dw, magnitudes.dw));
}

const std::vector<ConvCase> kCases{
    {{2, 3, 7, 6}, {5, 3, 3, 3}, {.padding = 1}},
    {{1, 4, 9, 8},
     {6, 2, 3, 2},
     {.stride = {2, 3}, .padding = {0, 1}, .dilation = {2, 1}, .groups = 2}},
    {{2, 6, 5, 5}, {6, 1, 3, 3}, {.stride = 2, .padding = 2, .groups = 6}},  // depthwise
    {{3, 4, 4, 4}, {2, 4, 1, 1}, {.stride = 2}},  // some pixels are never seen
    {{1, 2, 3, 3}, {3, 2, 3, 3}, {}},             // one output pixel
};

}  // namespace

TEST_CASE("cuda: convolution and its gradients, direct and implicit gemm", "[quick][cuda]") {
  for (const ConvStep step : {ConvStep::Direct, ConvStep::ImplicitGemm})
    for (const ConvCase& c : kCases)
      for (const bool channels_last : {false, true}) {
        check(step, c, DType::Float32, channels_last);
        check(step, c, DType::Float64, channels_last);
        check(step, c, DType::BFloat16, channels_last);
      }
}

TEST_CASE("cuda: the gradient of a weight over many pixels is summed in parts", "[quick][cuda]") {
  check(ConvStep::ImplicitGemm, {{4, 2, 24, 24}, {3, 2, 3, 3}, {.padding = 1}}, DType::Float32,
        false);
}

TEST_CASE("cuda: convolution on tensor cores", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    check(ConvStep::TensorCores, {{2, 8, 6, 5}, {16, 8, 3, 3}, {.padding = 1}}, dtype, true);
    check(ConvStep::TensorCores, {{1, 16, 7, 7}, {8, 16, 3, 3}, {.stride = 2, .padding = 1}}, dtype,
          true);
    check(ConvStep::TensorCores, {{2, 16, 5, 5}, {32, 8, 1, 1}, {.groups = 2}}, dtype, true);
  }
}

TEST_CASE("cuda: convolution in large tiles on tensor cores", "[cuda]") {
  // A tile of 128 output pixels for each multiprocessor, and 72 channels, which are more than a
  // small tile has.
  const int64_t images = cuda::multiprocessors(Device(DeviceType::CUDA)) * 128 / (9 * 7) + 1;
  check(ConvStep::TensorCores, {{images, 72, 9, 7}, {72, 72, 3, 3}, {.padding = 1}},
        DType::BFloat16, true);
  check(ConvStep::TensorCores, {{images, 144, 9, 7}, {144, 72, 1, 1}, {.groups = 2}},
        DType::Float16, true);
}

TEST_CASE("cuda: the gradient of a weight is summed in parts on tensor cores, too",
          "[quick][cuda]") {
  check(ConvStep::TensorCores, {{2, 8, 18, 19}, {16, 8, 3, 3}, {.padding = 1}}, DType::BFloat16,
        true);
  check(ConvStep::TensorCores, {{3, 32, 16, 16}, {16, 16, 1, 1}, {.groups = 2}}, DType::Float16,
        true);
}

TEST_CASE("cuda: convolution of images in shared memory", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  const auto both = [](const ConvCase& c) {
    check(ConvStep::SharedImage, c, DType::BFloat16, true);
    check(ConvStep::SharedImage, c, DType::Float16, true);
  };
  // No batch is a multiple of the blocks. Odd sides leave the parities of dx unequal.
  both({{1, 16, 8, 8}, {16, 16, 3, 3}, {.padding = 1}});
  both({{3, 16, 9, 7}, {32, 16, 3, 3}, {.stride = 2, .padding = 1}});
  both({{2, 32, 7, 5}, {32, 32, 3, 3}, {.padding = 1}});
  both({{2, 32, 8, 6}, {64, 32, 3, 3}, {.stride = 2, .padding = 1}});
  both({{1, 64, 4, 5}, {64, 64, 3, 3}, {.padding = 1}});
  both({{2, 64, 3, 3}, {16, 64, 3, 3}, {.padding = 1}});
  both({{1, 16, 1, 1}, {16, 16, 3, 3}, {.stride = 2, .padding = 1}});
  both({{2, 16, 7, 6}, {32, 16, 5, 5}, {.padding = 2}});
  both({{1, 32, 6, 5}, {16, 32, 5, 5}, {.stride = 2, .padding = 2}});
}

TEST_CASE("cuda: convolution of many images, and of large ones, in shared memory", "[cuda]") {
  // Blocks that take several images, or bands of one.
  const int64_t images = 2 * cuda::multiprocessors(Device(DeviceType::CUDA)) + 1;
  check(ConvStep::SharedImage, {{images, 16, 5, 4}, {16, 16, 3, 3}, {.padding = 1}},
        DType::BFloat16, true);
  check(ConvStep::SharedImage, {{2, 16, 49, 50}, {16, 16, 3, 3}, {.padding = 1}}, DType::BFloat16,
        true);
  check(ConvStep::SharedImage, {{1, 16, 61, 47}, {32, 16, 3, 3}, {.stride = 2, .padding = 1}},
        DType::Float16, true);
}

TEST_CASE("cuda: convolution in shared memory gives the same bits on every card", "[quick][cuda]") {
  const ConvCase c{{3, 16, 20, 9}, {32, 16, 3, 3}, {.stride = 2, .padding = 1}};
  const Tensor x = to_device(in_layout(random_tensor(c.x, DType::BFloat16, 1), true));
  const Tensor w = to_device(in_layout(random_tensor(c.w, DType::BFloat16, 2), true));
  const Tensor dy = to_device(in_layout(random_tensor(c.y(), DType::BFloat16, 3), true));
  const auto results = [&](ConvStep step) {
    const Stream stream = current_stream(x.device());
    const Tensor y = empty_like(dy);
    const Tensor dx = empty_like(x);
    const Tensor dw = empty_on_device(c.w, DType::Float32);
    cuda::conv2d(step, stream, y, x, w, {}, c.options);
    cuda::conv2d_backward_input(step, stream, dx, dy, w, {}, c.options);
    cuda::conv2d_backward_weight(step, stream, dw, dy, x, c.options);
    return std::vector{values(y), values(dx), values(dw)};
  };
  const auto bits = results(ConvStep::SharedImage);
  const LargeDevices large;  // a card that takes an image in bands
  REQUIRE(results(ConvStep::SharedImage) == bits);
  // Other algorithms add in another order. So this shows which one is chosen.
  REQUIRE(results(ConvStep::TensorCores)[2] != bits[2]);
  const Tensor chosen = empty_on_device(c.w, DType::Float32);
  const ProviderGuard ours(Provider::Native);
  kernels::conv2d_backward_weight(chosen, dy, x, c.options);
  REQUIRE(values(chosen) == bits[2]);
}

TEST_CASE("cuda: which convolutions fit into shared memory", "[quick]") {
  const auto fits = [](const Shape& x, const Shape& w, const Conv2dOptions& o, DType dtype) {
    return cuda::shared_image_supports({.dtype = dtype, .x = x, .w = w, .options = o});
  };
  const Conv2dOptions same{.padding = 1};
  const Conv2dOptions half{.stride = 2, .padding = 1};
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    // ResNet-20 on CIFAR-10, and the second layer of the CNN
    CHECK(fits({128, 16, 32, 32}, {16, 16, 3, 3}, same, dtype));
    CHECK(fits({128, 16, 32, 32}, {32, 16, 3, 3}, half, dtype));
    CHECK(fits({128, 32, 16, 16}, {32, 32, 3, 3}, same, dtype));
    CHECK(fits({128, 32, 16, 16}, {64, 32, 3, 3}, half, dtype));
    CHECK(fits({128, 64, 8, 8}, {64, 64, 3, 3}, same, dtype));
    CHECK(fits({128, 16, 14, 14}, {32, 16, 5, 5}, {.padding = 2}, dtype));
    CHECK(fits({0, 16, 8, 8}, {16, 16, 3, 3}, same, dtype));
    // too large, other channels, and other windows
    CHECK_FALSE(fits({128, 64, 32, 32}, {64, 64, 3, 3}, same, dtype));
    CHECK_FALSE(fits({128, 16, 224, 224}, {16, 16, 3, 3}, same, dtype));
    CHECK_FALSE(fits({128, 32, 8, 8}, {128, 32, 3, 3}, same, dtype));
    CHECK_FALSE(fits({128, 24, 8, 8}, {32, 24, 3, 3}, same, dtype));
    CHECK_FALSE(fits({128, 64, 8, 8}, {64, 64, 5, 5}, {.padding = 2}, dtype));
    CHECK_FALSE(fits({128, 16, 8, 8}, {16, 16, 3, 3}, {}, dtype));
    CHECK_FALSE(fits({128, 16, 8, 8}, {16, 16, 3, 5}, {.padding = {1, 2}}, dtype));
    CHECK_FALSE(fits({128, 16, 8, 8}, {16, 16, 1, 1}, {}, dtype));
    CHECK_FALSE(fits({128, 16, 8, 8}, {16, 16, 3, 3}, {.stride = 3, .padding = 1}, dtype));
    CHECK_FALSE(fits({128, 16, 8, 8}, {16, 16, 3, 3}, {.stride = {1, 2}, .padding = 1}, dtype));
    CHECK_FALSE(fits({128, 16, 8, 8}, {16, 16, 3, 3}, {.padding = 1, .dilation = 2}, dtype));
    CHECK_FALSE(fits({128, 32, 8, 8}, {32, 16, 3, 3}, {.padding = 1, .groups = 2}, dtype));
  }
  CHECK_FALSE(fits({128, 16, 8, 8}, {16, 16, 3, 3}, same, DType::Float32));
}

// Images of few channels in both layouts; y and dy are always NHWC.
TEST_CASE("cuda: convolution of a first layer", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  const std::vector<ConvCase> cases{
      {{2, 3, 9, 8}, {64, 3, 3, 3}, {.padding = 1}},
      {{3, 1, 7, 7}, {32, 1, 5, 5}, {.stride = {1, 2}, .padding = 2}},
      {{1, 2, 6, 5}, {48, 2, 2, 3}, {.dilation = {1, 2}}},
      {{2, 3, 20, 17}, {128, 3, 3, 3}, {.stride = 2, .padding = 1}},
  };
  for (const ConvCase& c : cases)
    for (const DType dtype : {DType::BFloat16, DType::Float16})
      for (const bool channels_last : {false, true}) {
        INFO("x " << c.x << ", w " << c.w << ", " << dtype
                  << (channels_last ? ", NHWC" : ", NCHW"));
        const Tensor x = in_layout(random_tensor(c.x, dtype, 1), channels_last);
        const Tensor w = random_tensor(c.w, dtype, 2);
        const Tensor dy = in_layout(random_tensor(c.y(), dtype, 3), true);
        const Tensor bias = random_tensor({c.w[0]}, dtype, 4);
        const ConvResults expected = by_cpu(c, x, w, bias, dy);
        const ConvResults magnitudes =
            by_cpu(c, absolute(x), absolute(w), absolute(bias), absolute(dy));
        const ConvTerms terms = terms_of(c);
        const Tensor device_x = to_device(x);
        const Tensor device_dy = to_device(dy);
        const Stream stream = current_stream(device_x.device());
        const Tensor out = to_device(dy);
        const Tensor out_dw = empty_on_device(c.w, DType::Float32);
        REQUIRE(cuda::supports(ConvStep::FirstLayer, device_x, to_device(w), out, c.options));
        cuda::conv2d(ConvStep::FirstLayer, stream, out, device_x, to_device(w), to_device(bias),
                     c.options);
        require_within(out, expected.y, sum_bounds(dtype, terms.y, magnitudes.y));
        cuda::conv2d_backward_weight(ConvStep::FirstLayer, stream, out_dw, device_dy, device_x,
                                     c.options);
        require_within(out_dw, expected.dw, sum_bounds(dtype, terms.dw, magnitudes.dw));
        // dx is computed for eight channels, of which the first are kept. The case adds x.
        const Tensor out_dx = empty_on_device(c.x, dtype);
        kernels::conv2d_backward_input(out_dx, device_dy, to_device(w), {}, c.options);
        std::vector<double> dx = expected.dx;
        const std::vector<double> added = values(in_double(x));
        for (size_t i = 0; i < dx.size(); ++i) dx[i] -= added[i];
        require_within(out_dx, dx, sum_bounds(dtype, terms.dx, magnitudes.dx));
      }
}

TEST_CASE("cuda: kernels::conv2d chooses for itself, and handles empty batches", "[quick][cuda]") {
  const ConvCase c{{2, 8, 5, 5}, {16, 8, 3, 3}, {.padding = 1}};
  for (const DType dtype : {DType::Float32, DType::BFloat16})
    for (const bool channels_last : {false, true}) {
      const Tensor x = in_layout(random_tensor(c.x, dtype, 5), channels_last);
      const Tensor w = random_tensor(c.w, dtype, 6);
      const Tensor dy = random_tensor(c.y(), dtype, 7);
      const ConvResults expected = by_cpu(c, x, w, {}, dy);
      const ConvResults magnitudes = by_cpu(c, absolute(x), absolute(w), {}, absolute(dy));
      const ConvTerms terms = terms_of(c);
      const Tensor out = empty_on_device(c.y(), dtype);
      const Tensor out_dw = empty_on_device(c.w, dtype);
      const Tensor out_dx = to_device(x);
      kernels::conv2d(out, to_device(x), to_device(w), {}, c.options);
      require_within(out, expected.y, sum_bounds(dtype, terms.y, magnitudes.y));
      kernels::conv2d_backward_input(out_dx, to_device(dy), to_device(w), to_device(x), c.options);
      require_within(out_dx, expected.dx, sum_bounds(dtype, terms.dx, magnitudes.dx));
      kernels::conv2d_backward_weight(out_dw, to_device(dy), to_device(x), c.options);
      require_within(out_dw, expected.dw, sum_bounds(dtype, terms.dw, magnitudes.dw));

      const Tensor none = empty_on_device({0, 8, 5, 5}, dtype);
      const Tensor no_y = empty_on_device({0, 16, 5, 5}, dtype);
      kernels::conv2d(no_y, none, to_device(w), {}, c.options);
      kernels::conv2d_backward_input(none, no_y, to_device(w), {}, c.options);
      kernels::conv2d_backward_weight(out_dw, no_y, none, c.options);
      require_close(out_dw, std::vector<double>(c.w.numel(), 0), 0);
    }
}

}  // namespace ringgrad::test::cuda_conv2d_test
