#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/gradient_home.h"
#include "ringgrad/autograd/ops.h"

#include <algorithm>
#include <limits>

#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad {
namespace {

// So that no product of two overflows.
constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

// `image` and `kernel` are the sizes of x and w [N, C, H, W].
void check_geometry(const char* operation, const Shape& image, const Shape& kernel, Pair stride,
                    Pair padding, Pair dilation, int64_t groups) {
  const auto check_pair = [=](const char* what, const Pair& pair, int64_t least) {
    CHECK(pair.h >= least && pair.w >= least && pair.h <= kLargest && pair.w <= kLargest, operation,
          ": the ", what, " is ", pair.h, "×", pair.w, ", expected ", least, " to ", kLargest);
  };
  check_pair("image", {image[2], image[3]}, 0);
  check_pair("kernel", {kernel[2], kernel[3]}, 0);
  check_pair("stride", stride, 1);
  check_pair("padding", padding, 0);
  check_pair("dilation", dilation, 1);
  CHECK(groups >= 1, operation, ": the number of groups is ", groups, ", expected at least 1");
}

// x [N, C, H, W], w [K, C/groups, R, S], b [channels] or undefined: kinds and dimensions.
void check_operands(const char* operation, const Tensor& x, const Tensor& w, const Tensor& b,
                    int64_t channels) {
  check_floating(operation, x);
  check_parameter(operation, x, w);
  check_dim(operation, "the input", x, 4);
  if (!b) return;
  check_parameter(operation, x, b);
  CHECK_AS(ShapeError, b.dim() == 1 && b.size(0) == channels, operation, ": the bias has shape ",
           b.shape(), ", expected [", channels, "], one for each output channel");
}

// A number for each channel of their memory, that of channel k at place k.
Tensor for_channels(const Tensor& images, DType dtype) {
  return zeros({1, memory_of(images).size(1), 1, images.is_channel_blocked() ? kChannelBlock : 1},
               {dtype, images.device()});
}

// Sums dy [N, K, P, Q] over all but the channels. The result [K] has dy's dtype, or a wider one.
Tensor channel_sums(const Tensor& dy, DType dtype) {
  const Tensor sums = for_channels(dy, dtype);
  kernels::sum(sums, memory_of(dy), 1);
  return sums.as_strided({dy.size(1)}, {1}, 0);
}

// Returns images like y [N, K, P, Q] that hold b [K] everywhere. The lanes beyond K are zero.
Tensor images_of(const Tensor& b, const Tensor& y) {
  const Tensor images = empty_like(y), memory = memory_of(images), all = for_channels(y, y.dtype());
  copy_(all.as_strided({y.size(1)}, {1}, 0), b);
  kernels::copy(memory, expand(all, memory.shape()));
  return images;
}

// [N, C, H, W] → [N, C H W], differentiable.
Tensor rows_of(const Tensor& x) {
  return reshape(x, {x.size(0), x.size(1) * x.size(2) * x.size(3)});
}

}  // namespace

Tensor conv2d(const Tensor& input, const Tensor& w_, const Tensor& b_,
              const Conv2dOptions& options) {
  OpScope scope("conv2d");
  const Tensor x_ = autocast(input);
  check_dim("conv2d", "the weight", w_, 4);
  check_operands("conv2d", x_, w_, b_, w_.size(0));
  check_geometry("conv2d", x_.shape(), w_.shape(), options.stride, options.padding,
                 options.dilation, options.groups);
  CHECK_AS(
      ShapeError, x_.size(1) == w_.size(1) * options.groups && w_.size(0) % options.groups == 0,
      "conv2d: the input is ", x_.shape(), ", the weight ", w_.shape(), ", groups ", options.groups,
      ", expected x.size(1) == w.size(1) · groups, and w.size(0) a multiple of groups");
  const int64_t height = options.out_h(x_.size(2), w_.size(2)),
                width = options.out_w(x_.size(3), w_.size(3));
  CHECK_AS(ShapeError,
           x_.size(2) + 2 * options.padding.h > options.dilation.h * (w_.size(2) - 1) &&
               x_.size(3) + 2 * options.padding.w > options.dilation.w * (w_.size(3) - 1) &&
               w_.size(2) > 0 && w_.size(3) > 0,
           "conv2d: the kernel of the weight ", w_.shape(), " (dilation ", options.dilation.h, "×",
           options.dilation.w, ") does not fit into the input ", x_.shape(), " padded by ",
           options.padding.h, "×", options.padding.w);

  const LayoutPolicy& policy = layout_policy(x_.device());
  const ConvPlan plan = policy.conv2d(conv_problem(ConvPass::Forward, x_, w_, options));
  if (plan.padded_channels) {
    const std::vector<int64_t> more = {0, 0, 0, 0, 0, plan.padded_channels - x_.size(1)};
    return conv2d(pad(to_layout(x_, plan.layout), more), pad(w_, more), b_, options);
  }
  if (plan.method == ConvMethod::MatrixProduct)
    return reshape(linear(rows_of(x_), rows_of(w_), b_), {x_.size(0), w_.size(0), 1, 1});

  const Layout layout = plan.layout;
  const Tensor x = to_layout(x_, plan.x_layout), w = strided_contiguous(w_),
               b = b_ ? strided_contiguous(b_) : b_;
  Tensor y = empty({x.size(0), w.size(0), height, width}, {x.dtype(), x.device(), layout});
  const Tensor filters = policy.conv2d_filters(x, w.detach());
  kernels::conv2d(y, x, filters, b, options);
  return differentiable(
      "conv2d", {x, w, b}, y,
      [x = save_if(wants_grad(w), x), w = save_if(wants_grad(x), w), b = wants_grad(b),
       b_dtype = b ? b.dtype() : w.dtype(), x_shape = x.shape(), x_layout = x.layout(),
       w_shape = w.shape(), w_dtype = w.dtype(), home = GradientHome(w),
       filters = wants_grad(x) ? filters : Tensor(), layout,
       options](const Tensor& dy_) -> Gradients {
        const Tensor dy = to_layout(dy_, layout);
        Tensor dx, dw;
        if (w) {  // not for the first layer, whose input wants no gradient
          dx = empty(x_shape, dy.options());
          w.get();  // which throws where it has been modified since
          kernels::conv2d_backward_input(dx, dy, filters, take_waiting_gradient(0, dx), options);
          dx = to_layout(dx, x_layout);
        }
        if (x) {
          dw = home.claim();
          if (!dw) dw = empty(w_shape, {w_dtype, dy.device()});
          kernels::conv2d_backward_weight(dw, dy, x.get(), options);
        }
        return {dx, dw, b ? channel_sums(dy, b_dtype) : Tensor()};
      });
}

Tensor conv_transpose2d(const Tensor& input, const Tensor& w_, const Tensor& b_,
                        const ConvTranspose2dOptions& options) {
  OpScope scope("conv_transpose2d");
  const Tensor x_ = autocast(input);
  check_dim("conv_transpose2d", "the weight", w_, 4);
  check_operands("conv_transpose2d", x_, w_, b_, w_.size(1) * options.groups);
  check_geometry("conv_transpose2d", x_.shape(), w_.shape(), options.stride, options.padding,
                 options.dilation, options.groups);
  CHECK_AS(ShapeError, x_.size(1) == w_.size(0) && w_.size(0) % options.groups == 0,
           "conv_transpose2d: the input is ", x_.shape(), ", the weight ", w_.shape(), ", groups ",
           options.groups, ", expected x.size(1) == w.size(0), a multiple of groups");
  const auto& [extra_h, extra_w] = options.output_padding;
  CHECK(extra_h >= 0 && extra_h < std::max(options.stride.h, options.dilation.h) && extra_w >= 0 &&
            extra_w < std::max(options.stride.w, options.dilation.w),
        "conv_transpose2d: the output padding is ", extra_h, "×", extra_w,
        ", expected less than the stride or the dilation");
  const int64_t height = (x_.size(2) - 1) * options.stride.h - 2 * options.padding.h +
                         options.dilation.h * (w_.size(2) - 1) + extra_h + 1;
  const int64_t width = (x_.size(3) - 1) * options.stride.w - 2 * options.padding.w +
                        options.dilation.w * (w_.size(3) - 1) + extra_w + 1;
  CHECK_AS(ShapeError,
           x_.size(2) > 0 && x_.size(3) > 0 && w_.size(2) > 0 && w_.size(3) > 0 && height > 0 &&
               width > 0,
           "conv_transpose2d: the input ", x_.shape(), " and the weight ", w_.shape(),
           " give an output of ", height, "×", width,
           ", expected images, kernels and outputs of at least 1×1");

  const Conv2dOptions conv{.stride = options.stride,
                           .padding = options.padding,
                           .dilation = options.dilation,
                           .groups = options.groups};
  const int64_t rows = conv.out_h(height, w_.size(2)), columns = conv.out_w(width, w_.size(3));
  const int64_t more_h = rows - x_.size(2), more_w = columns - x_.size(3);
  // An output padding of a stride or more: rows of x that are not there, as zeros.
  if (more_h > 0 || more_w > 0) {
    ConvTranspose2dOptions rest = options;
    rest.output_padding = {extra_h - more_h * options.stride.h,
                           extra_w - more_w * options.stride.w};
    return conv_transpose2d(pad(x_, {0, more_w, 0, more_h}), w_, b_, rest);
  }

  const Shape output = {x_.size(0), w_.size(1) * options.groups, height, width};
  const ConvProblem problem{.pass = ConvPass::BackwardInput,
                            .dtype = x_.dtype(),
                            .x = output,
                            .w = w_.shape(),
                            .options = conv,
                            .wanted = conv_algorithm()};
  const ConvPlan plan = layout_policy(x_.device()).conv2d(problem);
  if (plan.method == ConvMethod::MatrixProduct) {  // x has one pixel
    const Shape image = {w_.size(1), height, width};
    const Tensor b =
        b_ ? reshape(expand(reshape(b_, {image[0], 1, 1}), image), {image.numel()}) : b_;
    return reshape(linear(rows_of(x_), transpose(rows_of(w_), 0, 1), b), output);
  }

  const Layout layout = plan.layout;
  const Tensor x = to_layout(x_, layout), w = strided_contiguous(w_),
               b = b_ ? strided_contiguous(b_) : b_;
  Tensor y = empty(output, {x.dtype(), x.device(), layout});
  kernels::conv2d_backward_input(y, x, w, b ? images_of(b.detach(), y) : Tensor(), conv);
  // Mostly zeros.
  if (y.is_channel_blocked() && y.size(1) < kChannelBlock) y = to_layout(y, Layout::Strided);
  return differentiable(
      "conv_transpose2d", {x, w, b}, y,
      [x = save_if(wants_grad(w), x), w = save_if(wants_grad(x), w), b = wants_grad(b),
       b_dtype = b ? b.dtype() : w.dtype(), x_shape = x.shape(), w_shape = w.shape(),
       w_dtype = w.dtype(), layout, problem, conv](const Tensor& dy_) -> Gradients {
        ConvProblem forward = problem;
        forward.pass = ConvPass::Forward;
        forward.x_layout = dy_.layout();
        forward.layout = layout;
        const Tensor dy = to_layout(dy_, layout_policy(dy_.device()).conv2d(forward).x_layout);
        Tensor dx, dw;
        if (w) {
          dx = empty(x_shape, {dy.dtype(), dy.device(), layout});
          kernels::conv2d(dx, dy, w.get(), {}, conv);
        }
        if (x) {  // the roles of input and output are exchanged
          dw = empty(w_shape, {w_dtype, dy.device()});
          kernels::conv2d_backward_weight(dw, x.get(), dy, conv);
        }
        return {dx, dw, b ? channel_sums(dy, b_dtype) : Tensor()};
      });
}

}  // namespace ringgrad
