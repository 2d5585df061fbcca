#include "ringgrad/autograd/ops/common.h"

#include "ringgrad/autograd/classifier_ops.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {

void check_floating(const char* operation, const Tensor& x) {
  check_defined(operation, x);
  if (!is_floating(x.dtype())) throw_unsupported_dtype(operation, x.dtype(), "a floating dtype");
}

void check_dim(const char* operation, const char* argument, const Tensor& x, int dim) {
  check_defined(operation, x);
  CHECK_AS(ShapeError, x.dim() == dim, operation, ": ", argument, " has shape ", x.shape(),
           " with ", x.dim(), " dimensions, expected ", dim);
}

void check_same_kind(const char* operation, const Tensor& a, const Tensor& b) {
  check_defined(operation, a);
  check_defined(operation, b);
  CHECK_AS(DTypeError, a.dtype() == b.dtype(), operation, ": dtypes ", a.dtype(), " and ",
           b.dtype(), " differ, expected equal ones; convert with to(x, dtype)");
  CHECK_AS(DeviceError, a.device() == b.device(), operation, ": tensors on ", a.device(), " and ",
           b.device(), ", expected one device; move with to(x, device)");
}

void check_parameter(const char* operation, const Tensor& x, const Tensor& parameter) {
  check_defined(operation, parameter);
  if (parameter.dtype() == accumulator_dtype(x.dtype()) && parameter.device() == x.device()) return;
  check_same_kind(operation, x, parameter);
}

Tensor broadcast_view(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Strides strides = shape;
  const int offset = shape.dim() - x.dim();
  for (int d = 0; d < shape.dim(); ++d)
    strides[d] = d < offset || x.shape()[d - offset] == 1 ? 0 : x.strides()[d - offset];
  return x.as_strided(shape, strides, x.storage_offset());
}

Tensor sum_to(const Tensor& g, const Shape& shape) {
  if (g.shape() == shape) return g;
  Shape kept = shape;  // leading ones give it as many dimensions as g
  while (kept.dim() < g.dim()) kept.insert(0, 1);
  Tensor sum = empty(kept, {g.dtype(), g.device()});
  kernels::sum(sum, strided(g), 1);
  return sum.as_strided(shape, contiguous_strides(shape), 0);
}

Tensor strided(const Tensor& x) {
  return x.is_channel_blocked() ? to_layout(x, Layout::Strided) : x;
}
Tensor strided_contiguous(const Tensor& x) { return contiguous(strided(x)); }
Tensor like(const Tensor& dy, const Tensor& saved) {
  return dy.is_channel_blocked() == saved.is_channel_blocked() ? dy : to_layout(dy, saved.layout());
}

Tensor memory_of(const Tensor& images) {
  if (!images.is_channel_blocked()) return images;
  const int64_t blocks = (images.size(1) + kChannelBlock - 1) / kChannelBlock;
  const Shape memory = {images.size(0), blocks, images.size(2) * images.size(3), kChannelBlock};
  return Tensor(images.storage(), memory, contiguous_strides(memory), images.storage_offset(),
                images.dtype());
}

Tensor normalized_nothing(const char* operation, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> like;
  for (const Tensor& input : inputs) like.push_back(input ? input.detach() : input);
  return differentiable(operation, inputs, empty_like(like[0]), [like](const Tensor&) -> Gradients {
    Gradients none;
    for (const Tensor& input : like) none.push_back(input ? zeros_like(input) : input);
    return none;
  });
}

}  // namespace ringgrad
