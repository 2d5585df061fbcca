// Along one dimension: running sums, and the order of the elements.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

Tensor running_sum(const Tensor& x_, int dim, bool reverse) {
  const Tensor x = strided_contiguous(x_);
  Tensor y = empty_like(x);
  kernels::cumsum(around_dim(y, dim), around_dim(x, dim), reverse);
  return differentiable("cumsum", {x}, y,
                        [dim, reverse](const Tensor& dy) -> Gradients { return {running_sum(dy, dim, !reverse)}; });
}

}  // namespace

Tensor cumsum(const Tensor& x, int dim) {
  OpScope scope("cumsum");
  check_defined("cumsum", x);
  if (!is_floating(x.dtype()) && x.dtype() != DType::Int64) return cumsum(to(x, DType::Int64), dim);
  if (x.dim() == 0) return reshape(cumsum(reshape(x, {1}), dim), {});
  return running_sum(x, normalize_dim("cumsum", dim, x.dim()), false);
}

Tensor argsort(const Tensor& x_, int dim, bool descending) {
  OpScope scope("argsort");
  check_defined("argsort", x_);
  if (x_.dim() == 0) return reshape(argsort(reshape(x_, {1}), dim), {});
  dim = normalize_dim("argsort", dim, x_.dim());
  const Tensor x = as_contiguous(x_), index = empty(x.shape(), {DType::Int64, x.device()});
  kernels::argsort(around_dim(index, dim), around_dim(x, dim), descending);
  return index;
}

ValuesAndIndices sort(const Tensor& x, int dim, bool descending) {
  const Tensor order = argsort(x, dim, descending);
  return {x.dim() == 0 ? clone(x) : gather(x, dim, order), order};
}

ValuesAndIndices topk(const Tensor& x, int64_t k, int dim, bool largest) {
  check_defined("topk", x);
  dim = normalize_dim("topk", dim, x.dim());
  CHECK_AS(IndexError, k >= 0 && k <= x.size(dim), "topk: k is ", k, ", expected 0 to ", x.size(dim),
           ", the size of dimension ", dim, " of shape ", x.shape());
  const Tensor order = contiguous(slice(argsort(x, dim, largest), dim, 0, k));
  return {gather(x, dim, order), order};
}

}  // namespace ringgrad
