#include "ringgrad/autograd/gradient_home.h"

#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/autograd/ops/conv.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad {

void check_window(const char* operation, const Shape& image, const Shape& kernel, Pair stride,
                  Pair padding, Pair dilation, int64_t groups) {
  // So that the product of two does not overflow.
  const auto check_pair = [=](const char* what, const Pair& pair, int64_t least) {
    CHECK(pair.h >= least && pair.w >= least && pair.h <= INT32_MAX && pair.w <= INT32_MAX,
          operation, ": the ", what, " is ", pair, ", expected ", least, " to ", INT32_MAX);
  };
  check_pair("image", {image[2], image[3]}, 0);
  check_pair("kernel", {kernel[2], kernel[3]}, 1);
  check_pair("stride", stride, 1);
  check_pair("padding", padding, 0);
  check_pair("dilation", dilation, 1);
  CHECK(groups >= 1 && std::max(groups, kernel[1]) <= INT32_MAX, operation,
        ": the number of groups is ", groups, ", a group's channels are ", kernel[1],
        ", expected 1 to ", INT32_MAX);
}

void check_conv_operands(const char* operation, const Tensor& x, const Tensor& w, const Tensor& b,
                         int64_t channels) {
  check_floating(operation, x);
  check_parameter(operation, x, w);
  check_dim(operation, "the input", x, 4);
  if (!b) return;
  check_parameter(operation, x, b);
  CHECK_AS(ShapeError, b.dim() == 1 && b.size(0) == channels, operation, ": the bias has shape ",
           b.shape(), ", expected [", channels, "], one for each output channel");
}

Tensor for_channels(const Tensor& images, DType dtype) {
  return zeros({1, memory_of(images).size(1), 1, images.is_channel_blocked() ? kChannelBlock : 1},
               {dtype, images.device()});
}

Tensor channel_sums(const Tensor& dy, DType dtype) {
  const Tensor sums = for_channels(dy, dtype);
  kernels::sum(sums, memory_of(dy), 1);
  return sums.as_strided({dy.size(1)}, {1}, 0);
}

Tensor rows_of_images(const Tensor& x) {
  return reshape(x, {x.size(0), x.size(1) * x.size(2) * x.size(3)});
}

Tensor conv2d(const Tensor& input, const Tensor& w_, const Tensor& b_,
              const Conv2dOptions& options) {
  OpScope scope("conv2d");
  const Tensor x_ = product_input(input);
  check_dim("conv2d", "the weight", w_, 4);
  if (input && input.dim() == 3) {
    const Tensor y = conv2d(reshape(x_, {1, x_.size(0), x_.size(1), x_.size(2)}), w_, b_, options);
    return reshape(y, {y.size(1), y.size(2), y.size(3)});
  }
  check_conv_operands("conv2d", x_, w_, b_, w_.size(0));
  check_window("conv2d", x_.shape(), w_.shape(), options.stride, options.padding, options.dilation,
               options.groups);
  CHECK_AS(
      ShapeError, x_.size(1) == w_.size(1) * options.groups && w_.size(0) % options.groups == 0,
      "conv2d: the input is ", x_.shape(), ", the weight ", w_.shape(), ", groups ", options.groups,
      ", expected x.size(1) == w.size(1) · groups, and w.size(0) a multiple of groups");
  CHECK_AS(ShapeError,
           x_.size(2) + 2 * options.padding.h > options.dilation.h * (w_.size(2) - 1) &&
               x_.size(3) + 2 * options.padding.w > options.dilation.w * (w_.size(3) - 1),
           "conv2d: the kernel of the weight ", w_.shape(), " (dilation ", options.dilation,
           ") does not fit into the input ", x_.shape(), " padded by ", options.padding);

  const LayoutPolicy& policy = layout_policy(x_.device());
  const ConvPlan plan = policy.conv2d(conv_problem(ConvPass::Forward, x_, w_, options));
  if (plan.padded_channels) {
    const std::vector<int64_t> more = {0, 0, 0, 0, 0, plan.padded_channels - x_.size(1)};
    return conv2d(pad(to_layout(x_, plan.layout), more), pad(w_, more), b_, options);
  }
  if (plan.method == ConvMethod::MatrixProduct)
    return reshape(linear(rows_of_images(x_), rows_of_images(w_), b_),
                   {x_.size(0), w_.size(0), 1, 1});

  const Layout layout = plan.layout;
  const Tensor x = to_layout(x_, plan.x_layout);
  const Tensor w = strided_contiguous(w_);
  const Tensor b = b_ ? strided_contiguous(b_) : b_;
  Tensor y = empty({x.size(0), w.size(0), options.out_h(x.size(2), w.size(2)),
                    options.out_w(x.size(3), w.size(3))},
                   {x.dtype(), x.device(), layout});
  const Tensor filters = policy.conv2d_filters(x, w.detach());
  kernels::conv2d(y, x, filters, b, options);
  return differentiable(
      "conv2d", {x, w, b}, y,
      [x = save_if(wants_grad(w), x, 0), w = save_if(wants_grad(x), w, 1), b = wants_grad(b),
       b_dtype = b ? b.dtype() : w.dtype(), x_shape = x.shape(), x_layout = x.layout(),
       w_shape = w.shape(), w_dtype = w.dtype(), home = GradientHome(w),
       filters = wants_grad(x) ? filters : Tensor(), layout,
       options](const Tensor& dy_) -> Gradients {
        if (grad_enabled()) return twice->conv2d(dy_, x.get(), w.get(), options);
        const Tensor dy = to_layout(dy_, layout);
        Tensor dx;
        Tensor dw;
        if (w) {  // undefined for the first layer, whose input needs no gradient
          dx = empty(x_shape, dy.options());
          w.get();  // throws if it was modified since
          kernels::conv2d_backward_input(dx, dy, filters, take_waiting_gradient(0, dx), options);
          dx = to_layout(dx, x_layout);
        }
        if (x) {
          const Tensor& images = x.get();
          dw = home.claim();
          if (!dw) dw = empty(w_shape, {w_dtype, dy.device()});
          kernels::conv2d_backward_weight(dw, dy, images, options);
        }
        return {dx, dw, b ? channel_sums(dy, b_dtype) : Tensor()};
      });
}

}  // namespace ringgrad
