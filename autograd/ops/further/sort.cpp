// Running sums and the sorted order along one dimension.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {
namespace {

Tensor running_sum(const Tensor& x_, int dim, bool reverse) {
  const Tensor x = strided_contiguous(x_);
  Tensor y = empty_like(x);
  kernels::cumsum(around_dim(y, dim), around_dim(x, dim), reverse);
  return differentiable("cumsum", {x}, y, [dim, reverse](const Tensor& dy) -> Gradients {
    return {running_sum(dy, dim, !reverse)};
  });
}

}  // namespace

Tensor cumsum(const Tensor& x, Int dim) {
  OpScope scope("cumsum");
  check_defined("cumsum", x);
  if (!is_floating(x.dtype()) && x.dtype() != DType::Int64) return cumsum(to(x, DType::Int64), dim);
  if (x.dim() == 0) return reshape(cumsum(reshape(x, {1}), dim), {});
  return running_sum(x, normalize_dim("cumsum", dim, x.dim()), false);
}

// Returns the positions of the first k elements in sorted order along a dimension.
static Tensor first_in_order(const Tensor& x_, int64_t k, int dim, bool descending) {
  const Tensor x = as_contiguous(x_);
  Shape shape = x.shape();
  if (x.device().is_cpu()) shape[dim] = k;  // elsewhere all are sorted
  const Tensor index = empty(shape, {DType::Int64, x.device()});
  kernels::argsort(around_dim(index, dim), around_dim(x, dim), descending);
  return contiguous(slice(index, dim, 0, k));
}

Tensor argsort(const Tensor& x, Int dim, Flag descending) {
  OpScope scope("argsort");
  check_defined("argsort", x);
  if (x.dim() == 0) return reshape(argsort(reshape(x, {1}), dim), {});
  dim = normalize_dim("argsort", dim, x.dim());
  return first_in_order(x, x.size(dim), dim, descending);
}

ValuesAndIndices sort(const Tensor& x, Int dim, Flag descending) {
  const Tensor order = argsort(x, dim, descending);
  return {x.dim() == 0 ? clone(x) : gather(x, dim, order), order};
}

ValuesAndIndices topk(const Tensor& x, Int64 k, Int dim, Flag largest) {
  OpScope scope("topk");
  check_defined("topk", x);
  dim = normalize_dim("topk", dim, x.dim());
  CHECK_AS(IndexError, k >= 0 && k <= x.size(dim), "topk: k is ", k, ", expected 0 to ",
           x.size(dim), ", the size of dimension ", dim, " of shape ", x.shape());
  const Tensor order = first_in_order(x, k, dim, largest);
  return {gather(x, dim, order), order};
}

}  // namespace ringgrad
