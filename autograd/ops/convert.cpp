#include "ringgrad/autograd/ops/common.h"

namespace ringgrad {

Tensor to(const Tensor& x, DType dtype) {
  OpScope scope("to");
  check_defined("to", x);
  if (x.dtype() == dtype) return x;
  Tensor y = empty_like(x, dtype);
  kernels::copy(y, x);
  if (!is_floating(dtype)) return y;
  return differentiable(
      "to", {x}, y, [from = x.dtype()](const Tensor& dy) -> Gradients { return {to(dy, from)}; });
}

Tensor contiguous(const Tensor& x) {
  check_defined("contiguous", x);
  if (x.is_contiguous()) return x;
  return differentiable("contiguous", {x}, as_contiguous(x),
                        [](const Tensor& dy) -> Gradients { return {dy}; });
}

Tensor to_layout(const Tensor& x, Layout layout) {
  OpScope scope("to_layout");
  check_defined("to_layout", x);
  const bool is_there = layout == Layout::Strided        ? x.is_contiguous()
                        : layout == Layout::ChannelsLast ? x.is_channels_last()
                                                         : x.is_channel_blocked();
  if (is_there) return x;
  Tensor y = empty(x.shape(), {x.dtype(), x.device(), layout});
  kernels::copy(y, x);
  return differentiable("to_layout", {x}, y, [from = x.layout()](const Tensor& dy) -> Gradients {
    return {dy.layout() == from ? dy : to_layout(dy, from)};
  });
}

}  // namespace ringgrad
