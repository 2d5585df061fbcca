#include "ringgrad/autograd/ops/further/common.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad {

// To make what is recorded costs more than the rest of it.
Tensor summed(const Tensor& g, const Shape& shape) {
  if (!grad_enabled()) return sum_to(g, shape);
  return linear_gradient("sum", g, sum_to(g, shape),
                         [from = g.shape()](const Tensor& d) { return repeated(d, from); });
}
Tensor repeated(const Tensor& g, const Shape& shape) {
  if (!grad_enabled()) return broadcast_view(g, shape);
  return linear_gradient("expand", g, broadcast_view(g, shape),
                         [from = g.shape()](const Tensor& d) { return summed(d, from); });
}

Tensor around_dim(const Tensor& x, int d) {
  ASSERT(x.is_contiguous());
  int64_t outer = 1;
  int64_t inner = 1;
  for (int i = 0; i < d; ++i) outer *= x.shape()[i];
  for (int i = d + 1; i < x.dim(); ++i) inner *= x.shape()[i];
  const Shape shape = {outer, x.shape()[d], inner};
  return x.as_strided(shape, contiguous_strides(shape), x.storage_offset());
}

void check_mask(const char* operation, const Tensor& mask, const Tensor& x) {
  check_defined(operation, mask);
  check_defined(operation, x);
  CHECK_AS(DTypeError, mask.dtype() == DType::Bool, operation, ": the mask has dtype ",
           mask.dtype(), ", expected bool, as x > 0 gives it");
  CHECK_AS(DeviceError, mask.device() == x.device(), operation, ": the mask is on ", mask.device(),
           ", the tensor on ", x.device(), ", expected one device; move with to(x, device)");
}

}  // namespace ringgrad
