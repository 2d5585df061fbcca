// A table of the algorithm that each convolution gets. The choice is a pure function of the
// problem.
#include "ringgrad/core/cpu/conv/plan.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::conv_plan_test {

namespace {

constexpr DType f32 = DType::Float32, bf16 = DType::BFloat16, f16 = DType::Float16,
                f64 = DType::Float64;
constexpr auto kForward = ConvPass::Forward;
constexpr auto kWeight = ConvPass::BackwardWeight;

struct Row {
  Shape x;
  Shape w;
  Conv2dOptions options;
  DType dtype;
  const char* vectors;  // what is chosen without tiles,
  const char* tiles;    // and with them
  ConvPass pass = kForward;
  Layout layout = Layout::Strided;  // the layout of x
};

}  // namespace

TEST_CASE("the CPU's algorithm for each convolution", "[quick][conv]") {
  const Conv2dOptions same{.padding = 1};
  const Conv2dOptions half{.stride = 2, .padding = 1};
  const Conv2dOptions first{.stride = 2, .padding = 3};
  const Conv2dOptions dilated{.padding = 2, .dilation = 2};
  const Conv2dOptions depthwise{.padding = 1, .groups = 64};
  const Conv2dOptions grouped{.padding = 1, .groups = 2};
  const Conv2dOptions oblong{.stride = {2, 1}, .padding = 1};
  const char* const f43 = "Winograd F(4, 3)";
  const char* const tiles = "direct, on tiles";
  const Row rows[] = {
      // ResNet's layers
      {{32, 3, 32, 32}, {64, 3, 3, 3}, same, f32, "direct, first layer", "direct, first layer"},
      {{32, 3, 32, 32}, {64, 3, 3, 3}, same, bf16, "direct, first layer", tiles},
      {{32, 3, 32, 32}, {64, 3, 3, 3}, same, bf16, "direct, first layer", tiles, kWeight},
      {{7, 3, 32, 32},
       {64, 3, 3, 3},
       same,
       bf16,
       "direct, first layer",
       "direct, first layer",
       kWeight},
      {{32, 3, 224, 224}, {64, 3, 7, 7}, first, f32, "direct, first layer", "direct, first layer"},
      {{32, 64, 32, 32}, {64, 64, 3, 3}, same, f32, f43, f43},
      {{32, 64, 32, 32}, {64, 64, 3, 3}, same, bf16, f43, tiles},
      {{32, 64, 32, 32}, {64, 64, 3, 3}, same, bf16, f43, tiles, kWeight},
      {{7, 64, 32, 32}, {64, 64, 3, 3}, same, bf16, f43, f43, kWeight},
      {{7, 64, 32, 32}, {64, 64, 3, 3}, same, bf16, f43, tiles},
      {{32, 64, 32, 32}, {128, 64, 3, 3}, half, f32, "Winograd, stride 2", "Winograd, stride 2"},
      {{32, 64, 4, 4}, {128, 64, 3, 3}, half, f32, "direct", "direct"},  // outputs of 2 x 2
      {{32, 16, 32, 32}, {8, 16, 3, 3}, half, f32, "direct", "direct"},  // too few filters
      {{32, 64, 32, 32}, {128, 64, 1, 1}, {.stride = 2}, f32, "direct", "direct"},
      // the CNN's
      {{32, 32, 14, 14},
       {64, 32, 5, 5},
       {.padding = 2},
       f32,
       "Winograd F(4, 5)",
       "Winograd F(4, 5)"},
      {{32, 32, 2, 2}, {64, 32, 5, 5}, {.padding = 2}, f32, "Winograd F(2, 5)", "Winograd F(2, 5)"},
      {{32, 32, 14, 14}, {64, 32, 7, 7}, {.padding = 3}, f32, "direct", "direct"},
      // dilation, groups, other dtypes
      {{32, 64, 32, 32},
       {64, 64, 3, 3},
       dilated,
       f32,
       "Winograd F(4, 3) of sub-images",
       "Winograd F(4, 3) of sub-images"},
      {{32, 8, 32, 32}, {64, 8, 3, 3}, dilated, f32, "planes", "planes"},
      // Its tiles would be half empty.
      {{32, 64, 5, 5}, {64, 64, 3, 3}, dilated, f32, "planes", "planes"},
      {{32, 64, 32, 32}, {64, 1, 3, 3}, depthwise, f32, "depthwise", "depthwise"},
      {{32, 64, 32, 32}, {64, 1, 3, 3}, depthwise, f64, "depthwise", "depthwise"},
      {{32, 64, 32, 32},
       {64, 1, 3, 3},
       depthwise,
       f32,
       "depthwise, blocked",
       "depthwise, blocked",
       kForward,
       Layout::ChannelBlocked},
      {{32, 64, 32, 32},
       {64, 1, 3, 3},
       depthwise,
       f64,
       "depthwise",
       "depthwise",
       kForward,
       Layout::ChannelBlocked},
      // Rows that are no vectors, and those that would be cut into phases.
      {{32, 64, 8, 8}, {64, 1, 3, 3}, depthwise, bf16, "depthwise, blocked", "depthwise, blocked"},
      {{32, 64, 8, 8}, {64, 1, 3, 3}, depthwise, f16, "depthwise", "depthwise"},
      {{32, 64, 32, 32},
       {64, 1, 3, 3},
       {.stride = 2, .padding = 1, .groups = 64},
       f32,
       "depthwise, blocked",
       "depthwise, blocked"},
      // Several filters of a channel; channels that would leave most of a vector empty.
      {{32, 64, 8, 8}, {128, 1, 3, 3}, depthwise, f32, "depthwise", "depthwise"},
      {{32, 8, 8, 8}, {8, 1, 3, 3}, {.groups = 8}, f32, "depthwise", "depthwise"},
      // Taps that reach far along one side, but not so far that most of a piece's copy is a border.
      {{1, 2, 32, 152},
       {2, 1, 1, 3},
       {.dilation = {1, 60}, .groups = 2},
       f32,
       "depthwise",
       "depthwise"},
      {{1, 2, 32, 332}, {2, 1, 1, 3}, {.dilation = {1, 150}, .groups = 2}, f32, "planes", "planes"},
      // Groups of whole blocks of channels, and others.
      {{32, 64, 32, 32}, {64, 32, 3, 3}, grouped, f32, f43, f43},
      {{32, 64, 32, 32}, {64, 32, 3, 3}, grouped, bf16, f43, tiles},
      {{32, 64, 32, 32}, {64, 32, 3, 3}, grouped, f64, "im2col, float64", "im2col, float64"},
      {{32, 64, 32, 32}, {64, 32, 1, 1}, {.groups = 2}, f32, "direct", "direct"},
      {{32, 48, 32, 32}, {64, 24, 3, 3}, grouped, f32, "planes", "planes"},
      {{32, 64, 32, 32}, {48, 32, 3, 3}, grouped, f32, "planes", "planes"},
      {{32, 64, 32, 32},
       {64, 32, 3, 3},
       {.padding = 2, .dilation = 2, .groups = 2},
       f32,
       "planes",
       "planes"},
      {{32, 64, 32, 32}, {64, 64, 3, 3}, oblong, f32, "planes", "planes"},
      {{32, 64, 32, 32}, {64, 64, 3, 3}, same, f16, "planes", "planes"},
      {{32, 64, 32, 32}, {64, 64, 3, 3}, same, f64, "im2col, float64", "im2col, float64"},
      {{32, 64, 7, 7}, {64, 64, 7, 7}, {}, f32, "one matrix product", "one matrix product"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.x[1], row.x[2], row.w[0], row.w[2], name(row.dtype), static_cast<int>(row.pass));
    const ConvProblem problem{.pass = row.pass,
                              .dtype = row.dtype,
                              .x = row.x,
                              .w = row.w,
                              .options = row.options,
                              .x_layout = row.layout};
    CHECK(name(conv::plan(problem, false)) == row.vectors);
    CHECK(name(conv::plan(problem, true)) == row.tiles);
  }
}

TEST_CASE("what the process wants changes the CPU's algorithm where there is another",
          "[quick][conv]") {
  ConvProblem p{.x = {32, 64, 32, 32}, .w = {64, 64, 3, 3}, .options = {.padding = 1}};
  const auto chosen = [&](ConvAlgorithm wanted) {
    p.wanted = wanted;
    return name(conv::plan(p, false));
  };
  CHECK(chosen(ConvAlgorithm::Direct) == "direct");
  p.w = {64, 64, 1, 1};
  CHECK(chosen(ConvAlgorithm::Winograd) == "direct");  // there is no scheme
  p = {.x = {32, 16, 32, 32}, .w = {8, 16, 3, 3}, .options = {.stride = 2, .padding = 1}};
  CHECK(chosen(ConvAlgorithm::Auto) == "direct");
  CHECK(chosen(ConvAlgorithm::Winograd) == "Winograd, stride 2");
}

}  // namespace ringgrad::test::conv_plan_test
