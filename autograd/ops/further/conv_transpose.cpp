#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/gradient_home.h"
#include "ringgrad/autograd/ops.h"

#include <algorithm>

#include "ringgrad/autograd/ops/conv.h"
#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad {
namespace {

// Returns images like y [N, K, P, Q] that hold b [K] everywhere. The lanes beyond K are zero.
Tensor images_of(const Tensor& b, const Tensor& y) {
  const Tensor images = empty_like(y);
  const Tensor memory = memory_of(images);
  const Tensor all = for_channels(y, y.dtype());
  copy_(all.as_strided({y.size(1)}, {1}, 0), b);
  kernels::copy(memory, expand(all, memory.shape()));
  return images;
}

}  // namespace

Tensor conv_transpose2d(const Tensor& input, const Tensor& w_, const Tensor& b_,
                        const ConvTranspose2dOptions& options) {
  OpScope scope("conv_transpose2d");
  const Tensor x_ = autocast(input);
  check_dim("conv_transpose2d", "the weight", w_, 4);
  if (input && input.dim() == 3)
    return squeeze(conv_transpose2d(unsqueeze(x_, 0), w_, b_, options), 0);
  check_dim("conv_transpose2d", "the input", x_, 4);
  check_window("conv_transpose2d", x_.shape(), w_.shape(), options.stride, options.padding,
               options.dilation, options.groups);
  check_conv_operands("conv_transpose2d", x_, w_, b_, w_.size(1) * options.groups);
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
  CHECK_AS(ShapeError, x_.size(2) > 0 && x_.size(3) > 0 && height > 0 && width > 0,
           "conv_transpose2d: the input ", x_.shape(), " and the weight ", w_.shape(),
           " give an output of ", height, "×", width,
           ", expected images and outputs of at least 1×1");

  const Conv2dOptions conv{.stride = options.stride,
                           .padding = options.padding,
                           .dilation = options.dilation,
                           .groups = options.groups};
  const int64_t rows = conv.out_h(height, w_.size(2));
  const int64_t columns = conv.out_w(width, w_.size(3));
  const int64_t more_h = rows - x_.size(2);
  const int64_t more_w = columns - x_.size(3);
  // If the output padding is a stride or more, x is extended by rows of zeros.
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
    return reshape(linear(rows_of_images(x_), transpose(rows_of_images(w_), 0, 1), b), output);
  }

  const Layout layout = plan.layout;
  const Tensor x = to_layout(x_, layout);
  const Tensor w = strided_contiguous(w_);
  const Tensor b = b_ ? strided_contiguous(b_) : b_;
  Tensor y = empty(output, {x.dtype(), x.device(), layout});
  kernels::conv2d_backward_input(y, x, w, b ? images_of(b.detach(), y) : Tensor(), conv);
  // Channel blocks would be mostly zeros.
  if (y.is_channel_blocked() && y.size(1) < kChannelBlock) y = to_layout(y, Layout::Strided);
  return differentiable(
      "conv_transpose2d", {x, w, b}, y,
      [x = save_if(wants_grad(w), x, 0), w = save_if(wants_grad(x), w, 1), b = wants_grad(b),
       b_dtype = b ? b.dtype() : w.dtype(), x_shape = x.shape(), w_shape = w.shape(),
       w_dtype = w.dtype(), home = GradientHome(w), layout, problem,
       conv](const Tensor& dy_) -> Gradients {
        if (grad_enabled()) {  // the roles of input and output are exchanged
          const OutputInfo* const of_b = wanted_input(2);
          return {w ? conv2d(dy_, w.get(), {}, conv) : Tensor(),
                  x ? conv2d_weight_gradient(x.get(), dy_, *wanted_input(1), conv) : Tensor(),
                  of_b ? to(sum(dy_, {0, 2, 3}), of_b->dtype) : Tensor()};
        }
        ConvProblem forward = problem;
        forward.pass = ConvPass::Forward;
        forward.x_layout = dy_.layout();
        forward.layout = layout;
        const Tensor dy = to_layout(dy_, layout_policy(dy_.device()).conv2d(forward).x_layout);
        Tensor dx;
        Tensor dw;
        if (w) {
          dx = empty(x_shape, {dy.dtype(), dy.device(), layout});
          kernels::conv2d(dx, dy, w.get(), {}, conv);
        }
        if (x) {
          const Tensor& images = x.get();
          dw = home.claim();
          if (!dw) dw = empty(w_shape, {w_dtype, dy.device()});
          kernels::conv2d_backward_weight(dw, images, dy, conv);
        }
        return {dx, dw, b ? channel_sums(dy, b_dtype) : Tensor()};
      });
}

}  // namespace ringgrad
