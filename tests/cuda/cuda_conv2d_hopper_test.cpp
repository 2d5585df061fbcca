// The convolutions on Hopper: which algorithm each gets, and each pass against the CPU's in double.
#include "ringgrad/cuda_kernels/hopper/conv2d.h"
#include "ringgrad/cuda_kernels/ladders.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/tests/cuda/conv2d_case.h"

namespace ringgrad::test::cuda_conv2d_hopper_test {
using cuda::ConvStep;
using cuda::HopperConv;

namespace {

ConvProblem problem_of(ConvPass pass, const ConvCase& c, DType dtype = DType::BFloat16) {
  return {.pass = pass, .dtype = dtype, .x = c.x, .w = c.w, .options = c.options};
}

Tensor on_device(const Shape& shape, DType dtype) {
  return empty(shape, {dtype, Device(DeviceType::CUDA), Layout::ChannelsLast});
}

// Runs the passes that Hopper has for the case: y with a bias, dx with x added, and dw.
void check(const ConvCase& c, DType dtype) {
  if (cuda::compute_capability_major(Device(DeviceType::CUDA)) != 9) {
    WARN("skipped: needs a Hopper GPU");
    return;
  }
  const Tensor x = in_layout(random_tensor(c.x, dtype, 1), true);
  const Tensor w = in_layout(random_tensor(c.w, dtype, 2), true);
  const Tensor dy = in_layout(random_tensor(c.y(), dtype, 3), true);
  const Tensor bias = random_tensor({c.w[0]}, dtype, 4);
  const ConvResults expected = by_cpu(c, x, w, bias, dy);
  const ConvResults magnitudes = by_cpu(c, absolute(x), absolute(w), absolute(bias), absolute(dy));
  const ConvTerms terms = terms_of(c);
  INFO("x " << c.x << ", w " << c.w << ", stride " << c.options.stride.h << ", padding "
            << c.options.padding.h << ", " << dtype);
  const Tensor device_x = to_device(x);
  const Tensor device_w = to_device(w);
  const Tensor device_dy = to_device(dy);
  const Stream stream = current_stream(device_x.device());
  const auto has = [&](ConvPass pass) {
    return cuda::hopper_conv(problem_of(pass, c, dtype)) != HopperConv::None;
  };
  REQUIRE(has(ConvPass::Forward));
  const Tensor out = on_device(c.y(), dtype);
  cuda::conv2d(ConvStep::Hopper, stream, out, device_x, device_w, to_device(bias), c.options);
  require_within(out, expected.y, sum_bounds(dtype, terms.y, magnitudes.y));
  if (has(ConvPass::BackwardInput)) {
    const Tensor out_dx = on_device(c.x, dtype);
    cuda::conv2d_backward_input(ConvStep::Hopper, stream, out_dx, device_dy, device_w, device_x,
                                c.options);
    require_within(out_dx, expected.dx, sum_bounds(dtype, terms.dx, magnitudes.dx));
  }
  REQUIRE(has(ConvPass::BackwardWeight));
  const Tensor out_dw = empty_on_device(c.w, DType::Float32);  // KCRS, as in an arena
  cuda::conv2d_backward_weight(ConvStep::Hopper, stream, out_dw, device_dy, device_x, c.options);
  require_within(out_dw, expected.dw, sum_bounds(dtype, terms.dw, magnitudes.dw));
}

}  // namespace

TEST_CASE("cuda: the algorithm of each convolution on Hopper", "[quick]") {
  struct Row {
    ConvCase convolution;
    HopperConv y;
    HopperConv dx;
    HopperConv dw;
    bool preferred;
  };
  constexpr auto kNone = HopperConv::None;
  constexpr auto kIm2col = HopperConv::Im2col;
  constexpr auto kWeight = HopperConv::Weight;
  const Conv2dOptions same{.padding = 1};
  const Conv2dOptions half{.stride = 2, .padding = 1};
  const std::vector<Row> table{
      // ResNet-18 on CIFAR-10
      {{{512, 3, 32, 32}, {64, 3, 3, 3}, same}, kNone, kNone, kNone, false},
      {{{512, 64, 32, 32}, {64, 64, 3, 3}, same},
       HopperConv::Border64,
       HopperConv::Border64,
       HopperConv::WeightBorder,
       true},
      {{{512, 64, 32, 32}, {128, 64, 3, 3}, half}, kIm2col, kIm2col, kWeight, true},
      {{{512, 128, 16, 16}, {128, 128, 3, 3}, same},
       HopperConv::Border128,
       HopperConv::Border128,
       kWeight,
       true},
      {{{512, 128, 16, 16}, {256, 128, 3, 3}, half}, kIm2col, kIm2col, kWeight, true},
      {{{512, 256, 8, 8}, {256, 256, 3, 3}, same}, kIm2col, kIm2col, kWeight, true},
      {{{512, 512, 4, 4}, {512, 512, 3, 3}, same}, kIm2col, kIm2col, kWeight, true},
      {{{512, 64, 32, 32}, {128, 64, 1, 1}, {.stride = 2}}, kIm2col, kIm2col, kWeight, true},
      // too narrow for border tiles, too wide
      {{{512, 64, 16, 16}, {64, 64, 3, 3}, same}, kIm2col, kIm2col, kWeight, true},
      {{{512, 64, 33, 33}, {64, 64, 3, 3}, same}, kIm2col, kIm2col, kWeight, true},
      {{{512, 128, 8, 8}, {128, 128, 3, 3}, same}, kIm2col, kIm2col, kWeight, true},
      // odd sizes: 64 pixels of one parity are no box
      {{{512, 64, 15, 15}, {64, 64, 3, 3}, half}, kIm2col, kNone, kWeight, true},
      {{{2048, 64, 15, 15}, {64, 64, 3, 3}, {.stride = 3}}, kIm2col, kNone, kWeight, true},
      // groups, channels that are no multiple of 8, few channels
      {{{512, 64, 32, 32}, {64, 32, 3, 3}, {.padding = 1, .groups = 2}},
       kNone,
       kNone,
       kNone,
       false},
      {{{512, 60, 32, 32}, {64, 60, 3, 3}, same}, kNone, kNone, kNone, false},
      {{{512, 16, 32, 32}, {16, 16, 3, 3}, same}, kIm2col, kIm2col, kWeight, false},
  };
  for (const Row& row : table) {
    INFO("x " << row.convolution.x << ", w " << row.convolution.w);
    const auto of = [&](ConvPass pass) { return problem_of(pass, row.convolution); };
    CHECK(cuda::hopper_conv(of(ConvPass::Forward)) == row.y);
    CHECK(cuda::hopper_conv(of(ConvPass::BackwardInput)) == row.dx);
    CHECK(cuda::hopper_conv(of(ConvPass::BackwardWeight)) == row.dw);
    CHECK(cuda::prefers_hopper(of(ConvPass::Forward)) == row.preferred);
    CHECK(cuda::prefers_hopper(of(ConvPass::BackwardInput)) == (row.preferred && row.dx != kNone));
    CHECK(cuda::prefers_hopper(of(ConvPass::BackwardWeight)) == row.preferred);
    CHECK(cuda::hopper_conv(problem_of(ConvPass::Forward, row.convolution, DType::Float32)) ==
          kNone);
  }
  // One image keeps too few multiprocessors busy.
  CHECK_FALSE(cuda::prefers_hopper(
      problem_of(ConvPass::Forward, {{1, 512, 4, 4}, {512, 512, 3, 3}, same})));
}

TEST_CASE("cuda: convolution by border tiles", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  check({{1, 64, 32, 32}, {64, 64, 3, 3}, {.padding = 1}}, DType::BFloat16);
  check({{3, 64, 9, 19}, {64, 64, 3, 3}, {.padding = 1}}, DType::Float16);
  check({{1, 128, 16, 16}, {128, 128, 3, 3}, {.padding = 1}}, DType::BFloat16);
  check({{2, 128, 17, 11}, {128, 128, 3, 3}, {.padding = 1}}, DType::Float16);
}

TEST_CASE("cuda: convolution by im2col of TMA", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  // tails of pixels, channels and filters
  check({{2, 72, 9, 7}, {136, 72, 3, 3}, {.padding = 1}}, DType::BFloat16);
  check({{1, 8, 7, 6}, {16, 8, 5, 3}, {.padding = {2, 1}}}, DType::Float16);
  check({{1, 24, 12, 13}, {40, 24, 3, 3}, {.padding = 2, .dilation = 2}}, DType::BFloat16);
  check({{2, 16, 9, 11}, {264, 16, 3, 3}, {.stride = {3, 2}}}, DType::Float16);
  // dx of four parities: all taps, one tap, and a stride in one dimension only
  check({{3, 64, 8, 8}, {72, 64, 3, 3}, {.stride = 2, .padding = 1}}, DType::BFloat16);
  check({{5, 136, 4, 8}, {24, 136, 1, 1}, {.stride = 2}}, DType::Float16);
  check({{2, 16, 5, 16}, {24, 16, 3, 3}, {.stride = {1, 2}, .padding = 1}}, DType::BFloat16);
}

TEST_CASE("cuda: ResNet-18's other convolutions on Hopper", "[cuda]") {
  check({{2, 64, 32, 32}, {128, 64, 3, 3}, {.stride = 2, .padding = 1}}, DType::BFloat16);
  check({{2, 128, 16, 16}, {256, 128, 3, 3}, {.stride = 2, .padding = 1}}, DType::BFloat16);
  check({{2, 256, 8, 8}, {256, 256, 3, 3}, {.padding = 1}}, DType::BFloat16);
  check({{2, 256, 8, 8}, {512, 256, 3, 3}, {.stride = 2, .padding = 1}}, DType::BFloat16);
  check({{3, 512, 4, 4}, {512, 512, 3, 3}, {.padding = 1}}, DType::BFloat16);
  check({{2, 64, 32, 32}, {128, 64, 1, 1}, {.stride = 2}}, DType::BFloat16);
  check({{2, 128, 16, 16}, {256, 128, 1, 1}, {.stride = 2}}, DType::BFloat16);
  check({{2, 256, 8, 8}, {512, 256, 1, 1}, {.stride = 2}}, DType::BFloat16);
}

// Other algorithms add in another order, so their bits differ.
TEST_CASE("cuda: kernels::conv2d_backward_weight uses Hopper where it is preferred",
          "[quick][cuda]") {
  const ConvCase c{{2, 64, 9, 9}, {64, 64, 3, 3}, {.padding = 1}};
  const bool hopper = cuda::compute_capability_major(Device(DeviceType::CUDA)) == 9;
  const Tensor x = to_device(in_layout(random_tensor(c.x, DType::BFloat16, 1), true));
  const Tensor dy = to_device(in_layout(random_tensor(c.y(), DType::BFloat16, 2), true));
  const Tensor chosen = empty_on_device(c.w, DType::Float32);
  const Tensor wanted = empty_on_device(c.w, DType::Float32);
  const Tensor other = empty_on_device(c.w, DType::Float32);
  const ProviderGuard ours(Provider::Native);
  kernels::conv2d_backward_weight(chosen, dy, x, c.options);
  const Stream stream = current_stream(x.device());
  cuda::conv2d_backward_weight(hopper ? ConvStep::Hopper : ConvStep::TensorCores, stream, wanted,
                               dy, x, c.options);
  cuda::conv2d_backward_weight(hopper ? ConvStep::TensorCores : ConvStep::ImplicitGemm, stream,
                               other, dy, x, c.options);
  REQUIRE(values(chosen) == values(wanted));
  REQUIRE(values(chosen) != values(other));
}

}  // namespace ringgrad::test::cuda_conv2d_hopper_test
