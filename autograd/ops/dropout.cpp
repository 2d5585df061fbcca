#include "ringgrad/autograd/ops/dropout.h"

#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {

Tensor dropout(const Tensor& x_, double p, bool training) {
  OpScope scope("dropout");
  check_floating("dropout", x_);
  CHECK(p >= 0 && p <= 1, "dropout: the probability is ", p, ", expected a number in [0, 1]");
  if (!training || p == 0) return x_;
  // Element i's number belongs to row-major index i, whatever the order in memory.
  const Tensor x = strided_contiguous(x_);
  Tensor y = empty_like(x);
  const Tensor state = default_generator(x.device()).draw(x.numel());
  kernels::dropout(y, x, state, p);
  return differentiable("dropout", {x}, y, [state = save(state), p](const Tensor& dy) -> Gradients {
    const Tensor g = strided_contiguous(dy);
    Tensor dx = empty_like(g);
    kernels::dropout(dx, g, state.get(), p);
    return {dx};
  });
}

}  // namespace ringgrad
