#include <cstdint>

#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/autograd/ops/conv.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad {
namespace {

// Checks x and the window, sets the stride in the options, and returns the shape of y.
Shape pooled_shape(const char* operation, const Tensor& x, Pool2dOptions& options) {
  check_floating(operation, x);
  check_dim(operation, "the input", x, 4);
  const auto& [_, kernel, stride, padding, counted] = options;
  if (stride == Pair(0)) options.stride = kernel;
  check_window(operation, x.shape(), {1, 1, kernel.h, kernel.w}, stride, padding, 1, 1);
  CHECK(padding.h <= kernel.h / 2 && padding.w <= kernel.w / 2, operation, ": the padding is ",
        padding, ", expected at most half the kernel ", kernel);
  const int64_t height = x.size(2) + 2 * padding.h;
  const int64_t width = x.size(3) + 2 * padding.w;
  CHECK_AS(ShapeError, x.size(2) > 0 && x.size(3) > 0 && height >= kernel.h && width >= kernel.w,
           operation, ": the kernel ", kernel, " does not fit into the input ", x.shape(),
           " padded by ", padding);
  return {x.size(0), x.size(1), (height - kernel.h) / stride.h + 1,
          (width - kernel.w) / stride.w + 1};
}

// Returns x in a layout that the device's pooling reads.
Tensor laid_out(const Tensor& x) { return to_layout(x, layout_policy(x.device()).pool2d(x)); }

}  // namespace

Tensor max_pool2d(const Tensor& x_, const Pool2dOptions& wanted) {
  OpScope scope("max_pool2d");
  Pool2dOptions options = wanted;
  const Shape shape = pooled_shape("max_pool2d", x_, options);
  CHECK_AS(ShapeError, x_.size(2) + 2 * options.padding.h <= INT32_MAX / x_.size(3),
           "max_pool2d: the planes of the input ", x_.shape(), " padded by ", options.padding,
           " have more than 2^31 - 1 pixels, whose places an int32 index cannot name");
  const Tensor x = laid_out(x_);
  Tensor y = empty(shape, x.options());
  Tensor index = empty(shape, {DType::Int32, x.device(), x.layout()});
  kernels::max_pool2d(y, index, x, options);
  return differentiable("max_pool2d", {x}, y,
                        [index = save(index), from = x.shape(), layout = x.layout(),
                         options](const Tensor& dy_) -> Gradients {
                          if (grad_enabled()) return {twice->max_pool2d(dy_, index.get())};
                          const Tensor dy = to_layout(dy_, layout);
                          Tensor dx = empty(from, {dy.dtype(), dy.device(), layout});
                          kernels::max_pool2d_backward(dx, dy, index.get(), options);
                          return {dx};
                        });
}

Tensor avg_pool2d(const Tensor& x_, const Pool2dOptions& wanted) {
  OpScope scope("avg_pool2d");
  Pool2dOptions options = wanted;
  const Shape shape = pooled_shape("avg_pool2d", x_, options);
  const Tensor x = laid_out(x_);
  Tensor y = empty(shape, x.options());
  kernels::avg_pool2d(y, x, options);
  return differentiable(
      "avg_pool2d", {x}, y,
      [from = x.shape(), layout = x.layout(), options](const Tensor& dy_) -> Gradients {
        const Tensor dy = to_layout(dy_, layout);
        Tensor dx = empty(from, {dy.dtype(), dy.device(), layout});
        kernels::avg_pool2d_backward(dx, dy, options);
        return {linear_gradient("avg_pool2d_backward", dy_, dx,
                                [options](const Tensor& g) { return avg_pool2d(g, options); })};
      });
}

Tensor adaptive_avg_pool2d(const Tensor& x_, Pair output_size) {
  OpScope scope("adaptive_avg_pool2d");
  check_floating("adaptive_avg_pool2d", x_);
  check_dim("adaptive_avg_pool2d", "the input", x_, 4);
  CHECK(output_size.h >= 0 && output_size.w >= 0, "adaptive_avg_pool2d: the output size is ",
        output_size, ", expected at least 0");
  CHECK_AS(ShapeError, x_.size(2) > 0 && x_.size(3) > 0, "adaptive_avg_pool2d: the input ",
           x_.shape(), " has no pixels, expected at least one");
  const Tensor x = laid_out(x_);
  Tensor y = empty({x.size(0), x.size(1), output_size.h, output_size.w}, x.options());
  if (y.numel() > 0) kernels::adaptive_avg_pool2d(y, x);
  return differentiable(
      "adaptive_avg_pool2d", {x}, y,
      [from = x.shape(), layout = x.layout(), to = output_size](const Tensor& dy_) -> Gradients {
        const Tensor dy = to_layout(dy_, layout);
        if (dy.numel() == 0) return {zeros(from, {dy.dtype(), dy.device(), layout})};
        Tensor dx = empty(from, {dy.dtype(), dy.device(), layout});
        kernels::adaptive_avg_pool2d_backward(dx, dy);
        return {linear_gradient("adaptive_avg_pool2d_backward", dy_, dx,
                                [to](const Tensor& g) { return adaptive_avg_pool2d(g, to); })};
      });
}

}  // namespace ringgrad
