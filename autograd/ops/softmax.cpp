#include "ringgrad/autograd/ops/softmax.h"

#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/autograd/ops/view.h"

namespace ringgrad {
namespace {

using Forward = Kernel<void(const Tensor& y, const Tensor& x)>;
using Backward = Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& y)>;

// x [..., C] contiguous, seen as [N, C].
Tensor rows(const Tensor& x) {
  const Shape shape = {x.numel() / x.size(-1), x.size(-1)};
  return x.as_strided(shape, contiguous_strides(shape), x.storage_offset());
}

Tensor over_rows(const char* name, const Tensor& x_, int dim, const Forward& forward, const Backward& backward) {
  OpScope scope(name);
  check_floating(name, x_);
  if (x_.dim() == 0) return reshape(over_rows(name, reshape(x_, {1}), dim, forward, backward), {});
  dim = normalize_dim(name, dim, x_.dim());
  if (dim != x_.dim() - 1)  // the kernels see rows: bring the dimension to the end and back
    return transpose(over_rows(name, transpose(x_, dim, -1), -1, forward, backward), dim, -1);
  const Tensor x = strided_contiguous(x_);
  Tensor y = empty_like(x);
  if (x.numel() > 0) forward(rows(y), rows(x));
  return differentiable(name, {x}, y, [&backward, y = save(y)](const Tensor& dy) -> Gradients {
    Tensor dx = empty_like(y.get());
    if (dx.numel() > 0) backward(rows(dx), rows(strided_contiguous(dy)), rows(y.get()));
    return {dx};
  });
}

}  // namespace

Tensor softmax(const Tensor& x, int dim) {
  return over_rows("softmax", x, dim, kernels::softmax, kernels::softmax_backward);
}
Tensor log_softmax(const Tensor& x, int dim) {
  return over_rows("log_softmax", x, dim, kernels::log_softmax, kernels::log_softmax_backward);
}

}  // namespace ringgrad
