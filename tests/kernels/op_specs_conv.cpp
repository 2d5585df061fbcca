// Rows for convolutions, with every option.
#include "ringgrad/autograd/conv_batch_norm.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/kernels/fusion_guard.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

OpSpec conv(const std::string& name, const Conv2dOptions& o, std::vector<Sample> samples,
            int64_t terms) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"conv2d", "conv2d_backward_input", "conv2d_backward_weight", "sum"};
  spec.run = [o](const Tensors& in) {
    return Tensors{conv2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), o)};
  };
  spec.samples = std::move(samples);
  spec.terms = terms;
  return spec;
}

OpSpec conv_transpose(const std::string& name, const ConvTranspose2dOptions& o,
                      std::vector<Sample> samples) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"conv2d_backward_input", "conv2d", "conv2d_backward_weight", "sum", "add"};
  spec.run = [o](const Tensors& in) {
    return Tensors{conv_transpose2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), o)};
  };
  spec.samples = std::move(samples);
  spec.terms = 64;
  return spec;
}

// Inputs: x, w, weight, bias, and the residual if there are five. As one node on every device.
OpSpec normalized_conv(const std::string& name, const Conv2dOptions& o,
                       std::vector<Sample> samples) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"conv2d_batch_stats", "batch_norm_apply", "batch_norm_backward",
                  "conv2d_backward_input", "conv2d_backward_weight"};
  spec.run = [o](const Tensors& in) {
    const FusionGuard everywhere(Fusion::Always, Fusion::Always);
    const Tensor y =
        conv2d_batch_norm(in[0], in[1], {in[2], in[3]}, o,
                          {.eps = 1e-2,
                           .activation = in.size() > 4 ? Activation::Relu : Activation::None,
                           .residual = in.size() > 4 ? in[4] : Tensor()});
    return Tensors{y};
  };
  spec.samples = std::move(samples);
  spec.terms = 256;
  return spec;
}

// Inputs: dy, w, addend, the batch norm's x and y, its mean and variance.
OpSpec gradient_sums(const std::string& name, bool relu) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"conv2d_backward_batch_sums"};
  spec.run = [relu](const Tensors& in) {
    const Tensor g = empty_like(in[2]);
    const Tensor sum_dy = empty_like(in[5]);
    const Tensor sum_dy_xhat = empty_like(in[5]);
    kernels::conv2d_backward_batch_sums(g, sum_dy, sum_dy_xhat, in[0], in[1], in[2], in[3],
                                        relu ? in[4] : Tensor(), in[5], in[6], 1e-2,
                                        {.padding = 1});
    return Tensors{g, sum_dy, sum_dy_xhat};
  };
  const Shape image = {2, 3, 4, 5};
  spec.samples = {{uniform({2, 4, 4, 5}), uniform({4, 3, 3, 3}), uniform(image), uniform(image),
                   uniform(image), uniform({3}).kept_wide(), uniform({3}, 0.5, 2).kept_wide()}};
  spec.terms = 80;
  spec.bare_kernel = true;
  spec.never_empty = "a batch norm that trains has at least two numbers for each channel";
  return spec;
}

}  // namespace

std::vector<OpSpec> conv_specs() {
  std::vector<OpSpec> specs = {
      conv("conv2d", {},
           {{uniform({2, 3, 5, 6}), uniform({4, 3, 3, 3}), uniform({4})},
            {uniform({1, 2, 3, 3}), uniform({2, 2, 1, 1})},
            {uniform({1, 1, 3, 4}), uniform({2, 1, 3, 4}), uniform({2})},
            {uniform({1, 17, 4, 4}), uniform({18, 17, 2, 2}), uniform({18})},
            {uniform({0, 3, 5, 6}), uniform({4, 3, 3, 3}), uniform({4})},
            {uniform({2, 3, 5, 6}).without_grad(), uniform({4, 3, 3, 3}), uniform({4})},
            {uniform({2, 3, 5, 6}), uniform({4, 3, 3, 3}).without_grad(),
             uniform({4}).without_grad()}},
           80),
      conv("conv2d padded", {.padding = {1, 2}},
           {{uniform({2, 3, 4, 5}), uniform({4, 3, 3, 3}), uniform({4})},
            {uniform({1, 1, 1, 1}), uniform({1, 1, 3, 3})},
            {uniform({0, 1, 4, 4}), uniform({1, 1, 3, 3})}},
           64),
      conv("conv2d 3×3, padding 1",
           {.padding = 1},  // the kernel of ResNets: where fast algorithms live
           {{uniform({2, 16, 6, 5}), uniform({16, 16, 3, 3})},
            {uniform({1, 20, 5, 7}), uniform({17, 20, 3, 3}), uniform({17})},
            {uniform({0, 16, 6, 5}), uniform({16, 16, 3, 3})}},
           200),
      conv("conv2d with wide parameters", {.padding = 1},
           {{uniform({2, 8, 5, 4}), uniform({16, 8, 3, 3}).kept_wide(), uniform({16}).kept_wide()},
            {uniform({1, 3, 4, 4}), uniform({5, 3, 1, 1}).kept_wide(), uniform({5}).kept_wide()},
            {uniform({0, 8, 5, 4}), uniform({16, 8, 3, 3}).kept_wide()}},
           100),
      conv("conv2d strided", {.stride = {2, 3}, .padding = 1},
           {{uniform({2, 3, 7, 8}), uniform({2, 3, 3, 3}), uniform({2})},
            {uniform({1, 2, 6, 6}), uniform({2, 2, 1, 1})},
            {uniform({0, 2, 6, 6}), uniform({2, 2, 1, 1})}},
           32),
      conv("conv2d 1×1 strided", {.stride = 2},
           {{uniform({2, 4, 5, 6}), uniform({3, 4, 1, 1})},
            {uniform({0, 4, 5, 6}), uniform({3, 4, 1, 1})}},
           16),
      conv("conv2d dilated", {.padding = {2, 0}, .dilation = {2, 3}},
           {{uniform({2, 2, 6, 8}), uniform({3, 2, 3, 2}), uniform({3})},
            {uniform({1, 17, 6, 14}), uniform({18, 17, 3, 3}), uniform({18})},
            {uniform({0, 16, 6, 14}), uniform({3, 16, 3, 3})}},
           200),
      conv("conv2d grouped", {.stride = 2, .padding = 1, .groups = 2},
           {{uniform({2, 4, 5, 5}), uniform({6, 2, 3, 3}), uniform({6})},
            {uniform({0, 4, 5, 5}), uniform({6, 2, 3, 3})}},
           32),
      conv("conv2d depthwise", {.padding = 1, .groups = 5},
           {{uniform({2, 5, 4, 4}), uniform({5, 1, 3, 3}), uniform({5})},
            {uniform({0, 5, 4, 4}), uniform({5, 1, 3, 3})}},
           32),
      conv("conv2d depthwise of many channels", {.stride = {1, 2}, .padding = 1, .groups = 18},
           {{uniform({2, 18, 4, 5}), uniform({18, 1, 3, 3}), uniform({18})},
            {uniform({1, 18, 3, 20}), uniform({18, 1, 2, 5})},
            {uniform({0, 18, 4, 4}), uniform({18, 1, 3, 3})}},
           32),
      conv("conv2d depthwise with wide parameters", {.padding = 1, .groups = 18},
           {{uniform({2, 18, 4, 5}), uniform({18, 1, 3, 3}).kept_wide(), uniform({18}).kept_wide()},
            {uniform({0, 18, 4, 5}), uniform({18, 1, 3, 3}).kept_wide()}},
           32),
      conv_transpose("conv_transpose2d", {},
                     {{uniform({2, 3, 3, 4}), uniform({3, 2, 3, 3}), uniform({2})},
                      {uniform({1, 2, 2, 2}), uniform({2, 1, 1, 1})},
                      {uniform({0, 3, 3, 4}), uniform({3, 2, 3, 3}), uniform({2})}}),
      conv_transpose("conv_transpose2d with options",
                     {.stride = {2, 3},
                      .padding = {1, 0},
                      .output_padding = {1, 2},
                      .dilation = {1, 2},
                      .groups = 2},
                     {{uniform({2, 4, 3, 2}), uniform({4, 3, 3, 2}), uniform({6})},
                      {uniform({0, 4, 3, 2}), uniform({4, 3, 3, 2}), uniform({6})}}),
      conv_transpose("conv_transpose2d with an output padding above its stride",
                     {.stride = 1, .padding = 1, .output_padding = {2, 0}, .dilation = 3},
                     {{uniform({1, 2, 3, 3}), uniform({2, 2, 2, 2})},
                      {uniform({0, 2, 3, 3}), uniform({2, 2, 2, 2})}}),
  };
  const auto fails = [](const Shape& x, const Shape& w, const Shape& b, Conv2dOptions o) {
    return [=] { conv2d(zeros(x), zeros(w), zeros(b), o); };
  };
  specs[0].errors = {
      error<ShapeError>("conv2d: the input has shape [5, 5] with 2 dimensions, expected 4",
                        fails({5, 5}, {4, 3, 3, 3}, {4}, {})),
      error<ShapeError>("conv2d: the weight has shape [3, 3] with 2 dimensions, expected 4",
                        fails({1, 3, 5, 5}, {3, 3}, {4}, {})),
      error<ShapeError>("conv2d: the input is [1, 2, 5, 5], the weight [4, 3, 3, 3], groups 1",
                        fails({1, 2, 5, 5}, {4, 3, 3, 3}, {4}, {})),
      error<ShapeError>("and w.size(0) a multiple of groups",
                        fails({1, 4, 5, 5}, {3, 2, 3, 3}, {3}, {.groups = 2})),
      error<ShapeError>("conv2d: the bias has shape [3], expected [4]",
                        fails({1, 3, 5, 5}, {4, 3, 3, 3}, {3}, {})),
      error<ShapeError>("(dilation 2×2) does not fit into the input [1, 1, 4, 4] padded by 0×0",
                        fails({1, 1, 4, 4}, {1, 1, 3, 3}, {1}, {.dilation = 2})),
      error<ShapeError>("does not fit", fails({1, 1, 0, 4}, {1, 1, 1, 1}, {1}, {})),
      error<Error>("conv2d: the kernel is 0×1, expected 1 to",
                   fails({1, 1, 4, 4}, {1, 1, 0, 1}, {1}, {})),
      error<Error>("conv2d: the stride is 0×0",
                   fails({1, 1, 4, 4}, {1, 1, 1, 1}, {1}, {.stride = 0})),
      error<Error>("conv2d: the padding is -1×0",
                   fails({1, 1, 4, 4}, {1, 1, 1, 1}, {1}, {.padding = {-1, 0}})),
      error<Error>("conv2d: the dilation is 1×0",
                   fails({1, 1, 4, 4}, {1, 1, 1, 1}, {1}, {.dilation = {1, 0}})),
      error<Error>(
          "conv2d: the stride is 4611686018427387904×4611686018427387904, expected 1 to 2147483647",
          fails({1, 1, 4, 4}, {1, 1, 3, 3}, {1}, {.stride = kHuge, .padding = kHuge / 2})),
      error<Error>("conv2d: the padding is 4611686018427387904×0",
                   fails({1, 1, 4, 4}, {1, 1, 3, 3}, {1}, {.padding = {kHuge, 0}})),
      error<Error>("conv2d: the dilation is 1×4611686018427387904",
                   fails({1, 1, 4, 4}, {1, 1, 3, 3}, {1}, {.dilation = {1, kHuge}})),
      error<Error>("conv2d: the image is 4611686018427387904×4",
                   fails({0, 1, kHuge, 4}, {1, 1, 3, 3}, {1}, {.dilation = 2})),
      error<Error>("conv2d: the number of groups is 0",
                   fails({1, 1, 4, 4}, {1, 1, 1, 1}, {1}, {.groups = 0})),
      error<
          DTypeError>("conv2d: dtypes float32 and float64 differ",
                      [] {
                        conv2d(zeros({1, 1, 3, 3}), zeros({1, 1, 1, 1}, {.dtype = DType::Float64}));
                      }),
  };
  const auto transpose_fails = [](const Shape& x, const Shape& w, ConvTranspose2dOptions o) {
    return [=] { conv_transpose2d(zeros(x), zeros(w), {}, o); };
  };
  for (OpSpec& spec : specs)
    if (spec.name == "conv_transpose2d")
      spec.errors = {
          error<ShapeError>("conv_transpose2d: the input is [1, 2, 3, 3], the weight [3, 1, 2, 2]",
                            transpose_fails({1, 2, 3, 3}, {3, 1, 2, 2}, {})),
          error<Error>(
              "conv_transpose2d: the output padding is 2×0, "
              "expected less than the stride or the dilation",
              transpose_fails({1, 2, 3, 3}, {2, 1, 2, 2}, {.stride = 2, .output_padding = {2, 0}})),
          error<Error>("conv_transpose2d: the stride is 4611686018427387904×1",
                       transpose_fails({1, 2, 3, 3}, {2, 1, 2, 2}, {.stride = {kHuge, 1}})),
          error<ShapeError>("give an output of -1×-1",
                            transpose_fails({1, 2, 1, 1}, {2, 1, 1, 1}, {.padding = 1})),
          error<ShapeError>("expected images and outputs of at least 1×1",
                            transpose_fails({1, 2, 0, 3}, {2, 1, 2, 2}, {}))};
  const auto normalized = [](const Shape& x, const Shape& w, const Shape& y) {
    std::vector<Input> inputs = {uniform(x), uniform(w), uniform({w[0]}).kept_wide(),
                                 uniform({w[0]}).kept_wide()};
    if (y.dim() > 0) inputs.push_back(uniform(y));
    return Sample(inputs, true);
  };
  specs.push_back(normalized_conv(
      "batch_norm of conv2d", {.padding = 1},
      {normalized({2, 3, 4, 5}, {4, 3, 3, 3}, {}), normalized({2, 16, 4, 4}, {17, 16, 1, 1}, {}),
       normalized({0, 3, 4, 5}, {4, 3, 3, 3}, {})}));
  specs.push_back(normalized_conv("batch_norm of conv2d with residual and relu",
                                  {.stride = 2, .padding = 1},
                                  {normalized({2, 3, 5, 6}, {4, 3, 3, 3}, {2, 4, 3, 3}),
                                   normalized({2, 16, 4, 4}, {16, 16, 3, 3}, {2, 16, 2, 2}),
                                   normalized({0, 3, 4, 4}, {4, 3, 3, 3}, {0, 4, 2, 2})}));
  specs.push_back(gradient_sums("the sums of a convolution's gradient", false));
  specs.push_back(gradient_sums("the sums of a convolution's rectified gradient", true));
  return specs;
}

}  // namespace ringgrad::test
