#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

// [B, M, N] → [M, B N]: the batches side by side, so that a sum over them is part of one product,
// and rounded once.
Tensor side_by_side(const Tensor& x) {
  return reshape(permute(x, {1, 0, 2}), {x.size(1), x.size(0) * x.size(2)});
}

}  // namespace

Tensor matmul(const Tensor& left, const Tensor& right) {
  OpScope scope("matmul");
  const Tensor a_ = autocast(left);
  const Tensor b_ = autocast(right);
  check_same_kind("matmul", a_, b_);
  check_floating("matmul", a_);
  for (const Tensor* x : {&a_, &b_})
    CHECK_AS(ShapeError, x->dim() == 2 || x->dim() == 3, "matmul: an operand has shape ",
             x->shape(), ", expected 2 or 3 dimensions; unsqueeze() makes a vector a matrix");
  CHECK_AS(ShapeError, a_.size(-1) == b_.size(-2), "matmul: inner sizes differ: a is ", a_.shape(),
           ", b is ", b_.shape(), ", expected a.size(-1) == b.size(-2)");
  CHECK_AS(ShapeError, a_.dim() == 2 || b_.dim() == 2 || a_.size(0) == b_.size(0),
           "matmul: batch sizes differ: a is ", a_.shape(), ", b is ", b_.shape(),
           ", expected a.size(0) == b.size(0)");
  // One product of B·M rows, and its gradients need no sum over the batch.
  if (a_.dim() == 3 && b_.dim() == 2)
    return reshape(matmul(flatten(a_, 0, 1), b_), {a_.size(0), a_.size(1), b_.size(1)});

  const Tensor a = strided(a_);
  const Tensor b = strided(b_);
  return differentiable("matmul", {a, b}, matrix_product(a, b),
                        [a = save_if(wants_grad(b), a), b = save_if(wants_grad(a), b),
                         repeated = a.dim() < b.dim()](const Tensor& dy_) -> Gradients {
                          const Tensor dy = strided(dy_);
                          Tensor da;
                          if (b)
                            da = repeated ? matrix_product(side_by_side(dy),
                                                           swapped_matrix(side_by_side(b.get())))
                                          : matrix_product(dy, swapped_matrix(b.get()));
                          return {da, a ? matrix_product(swapped_matrix(a.get()), dy) : Tensor()};
                        });
}

}  // namespace ringgrad
