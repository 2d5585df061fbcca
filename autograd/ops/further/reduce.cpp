#include "ringgrad/autograd/ops.h"

#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/autograd/ops/further/reduced.h"
#include "ringgrad/autograd/thread_modes.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {
namespace {

void check_number(const char* operation, const Tensor& x) {
  check_defined(operation, x);
  if (x.dtype() == DType::Bool)
    throw_unsupported_dtype(operation, x.dtype(), "a number; convert with to(x, DType::Int64)");
}

Tensor scaled_sum(const char* name, const Tensor& x_, const Reduced& reduced, double scale,
                  bool keepdim) {
  const Tensor x = strided(x_);
  const Tensor kept = empty(reduced.kept, {x.dtype(), x.device()});
  kernels::sum(kept, x, scale);
  const Shape& shape = keepdim ? reduced.kept : reduced.dropped;
  return differentiable(
      name, {x}, kept.as_strided(shape, contiguous_strides(shape), 0),
      [from = x.shape(), kept = reduced.kept, scale](const Tensor& dy) -> Gradients {
        const Tensor g = reshape(dy, kept);
        return {repeated(scale == 1 ? g : mul(g, scale), from)};
      });
}

using Extreme = Kernel<void(const Tensor& y, const Tensor& index, const Tensor& x)>;

ValuesAndIndices extreme(const char* name, const Extreme& kernel, const Tensor& x_, int dim,
                         bool keepdim) {
  OpScope scope(name);
  check_number(name, x_);
  dim = reduced_dim(name, dim, x_.dim());
  if (x_.dim() == 0) return extreme(name, kernel, reshape(x_, {1}), 0, false);
  CHECK_AS(IndexError, x_.shape()[dim] > 0, name, ": dimension ", dim, " of shape ", x_.shape(),
           " is empty, expected at least one element");
  const Tensor x = strided_contiguous(x_);
  Shape kept = x.shape();
  Shape shape = x.shape();
  kept[dim] = 1;
  shape.erase(dim);
  if (keepdim) shape = kept;
  const Tensor values = empty(kept, {x.dtype(), x.device()});
  const Tensor indices = empty(kept, {DType::Int64, x.device()});
  const auto row = [dim](const Tensor& t) {  // [O, I]
    const Tensor around = around_dim(t, dim);
    const Shape two = {around.size(0), around.size(2)};
    return around.as_strided(two, contiguous_strides(two), around.storage_offset());
  };
  kernel(row(values), row(indices), around_dim(x, dim));
  const Tensor y = values.as_strided(shape, contiguous_strides(shape), 0);
  const auto backward = [from = x.shape(), kept, dim,
                         indices = save(indices)](const Tensor& dy) -> Gradients {
    Tensor dx = zeros(from, {dy.dtype(), dy.device()});
    const Tensor g = strided_contiguous(reshape(dy, kept));
    if (grad_enabled()) return {scatter_add(dx, dim, indices.get(), g)};
    kernels::scatter_add(around_dim(dx, dim), around_dim(g, dim), around_dim(indices.get(), dim));
    return {dx};
  };
  return {differentiable(name, {x}, y, backward),
          indices.as_strided(shape, contiguous_strides(shape), 0)};
}

Tensor extreme_of_all(const char* name, const Extreme& kernel, const Tensor& x) {
  check_number(name, x);
  CHECK_AS(IndexError, x.numel() > 0, name, ": a tensor of shape ", x.shape(),
           " is empty, expected at least one element");
  return extreme(name, kernel, reshape(x, {x.numel()}), 0, false).values;
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, Flag keepdim) {
  OpScope scope("sum");
  check_defined("sum", x);
  if (!is_floating(x.dtype()) && x.dtype() != DType::Int64)
    return sum(to(x, DType::Int64), dims, keepdim);
  return scaled_sum("sum", x, Reduced("sum", x.shape(), dims), 1, keepdim);
}

Tensor mean(const Tensor& x, const Dims& dims, Flag keepdim) {
  OpScope scope("mean");
  check_floating("mean", x);
  const Reduced reduced("mean", x.shape(), dims);
  // An empty mean is 0 · ∞ = NaN.
  return scaled_sum("mean", x, reduced, 1.0 / static_cast<double>(reduced.count), keepdim);
}

Tensor max(const Tensor& x) { return extreme_of_all("max", kernels::max, x); }
Tensor min(const Tensor& x) { return extreme_of_all("min", kernels::min, x); }
ValuesAndIndices max(const Tensor& x, Int dim, Flag keepdim) {
  return extreme("max", kernels::max, x, dim, keepdim);
}
ValuesAndIndices min(const Tensor& x, Int dim, Flag keepdim) {
  return extreme("min", kernels::min, x, dim, keepdim);
}

Tensor argmax(const Tensor& x, Int dim, Flag keepdim) {
  NoGradGuard no_grad;
  return extreme("argmax", kernels::max, x, dim, keepdim).indices;
}
Tensor argmin(const Tensor& x, Int dim, Flag keepdim) {
  NoGradGuard no_grad;
  return extreme("argmin", kernels::min, x, dim, keepdim).indices;
}
Tensor argmax(const Tensor& x) { return argmax(flatten(x), 0); }
Tensor argmin(const Tensor& x) { return argmin(flatten(x), 0); }

}  // namespace ringgrad
