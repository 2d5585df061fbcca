// Copies that the book does not need: to another device, and to memory of their own.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"

namespace ringgrad {

Tensor to(const Tensor& x, Device device) {
  OpScope scope("to");
  check_defined("to", x);
  if (x.device() == device) return x;
  check_device("to", device);
  const Tensor y = copy_of(x, {x.dtype(), device, x.layout()});
  return differentiable(
      "to", {x}, y, [from = x.device()](const Tensor& dy) -> Gradients { return {to(dy, from)}; });
}

Tensor clone(const Tensor& x) {
  OpScope scope("clone");
  check_defined("clone", x);
  Tensor y = empty_like(x);
  kernels::copy(y, x);
  return differentiable("clone", {x}, y, [](const Tensor& dy) -> Gradients { return {dy}; });
}

}  // namespace ringgrad
