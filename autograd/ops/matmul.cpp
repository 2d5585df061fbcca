#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

// A 2-D matrix as a batch of B times the same one (stride 0); a 3-D tensor as it is.
Tensor as_batch(const Tensor& x, int64_t batch) {
  return broadcast_view(x, {batch, x.size(-2), x.size(-1)});
}

Tensor swapped(const Tensor& x) {  // the last two dimensions, without history
  Shape shape = x.shape();
  Strides strides = x.strides();
  const int d = x.dim() - 2;
  std::swap(shape[d], shape[d + 1]);
  std::swap(strides[d], strides[d + 1]);
  return x.as_strided(shape, strides, x.storage_offset());
}

// a · b (+ bias) for strided operands of 2 or 3 dimensions, without history.
Tensor product(const Tensor& a, const Tensor& b, const Tensor& bias = {}) {
  const int64_t batch = a.dim() == 3 ? a.size(0) : b.dim() == 3 ? b.size(0) : 1;
  Tensor c = empty({batch, a.size(-2), b.size(-1)}, {a.dtype(), a.device()});
  kernels::matmul(c, as_batch(a, batch), as_batch(b, batch), bias);
  if (a.dim() == 3 || b.dim() == 3) return c;
  const Shape shape = {a.size(0), b.size(1)};
  return c.as_strided(shape, contiguous_strides(shape), 0);
}

// [B, M, N] → [M, B N]: the batches side by side, so that a sum over them is part of one product,
// and rounded once.
Tensor side_by_side(const Tensor& x) {
  return reshape(permute(x, {1, 0, 2}), {x.size(1), x.size(0) * x.size(2)});
}

Tensor column_sums(const Tensor& x) {  // [M, N] → [N]
  return sum_to(x, {x.size(1)});
}

}  // namespace

Tensor matmul(const Tensor& left, const Tensor& right) {
  OpScope scope("matmul");
  const Tensor a_ = autocast(left), b_ = autocast(right);
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

  const Tensor a = strided(a_), b = strided(b_);
  return differentiable("matmul", {a, b}, product(a, b),
                        [a = save_if(wants_grad(b), a), b = save_if(wants_grad(a), b),
                         repeated = a.dim() < b.dim()](const Tensor& dy_) -> Gradients {
                          const Tensor dy = strided(dy_);
                          Tensor da;
                          if (b)
                            da = repeated
                                     ? product(side_by_side(dy), swapped(side_by_side(b.get())))
                                     : product(dy, swapped(b.get()));
                          return {da, a ? product(swapped(a.get()), dy) : Tensor()};
                        });
}

namespace {

// The gradients of y = x · wᵀ + b for dy [N, out]: dx, dw and db, each undefined where it is not
// wanted. dx needs w, and dw needs x: each of the two is saved only where the other's gradient is
// wanted.
Gradients linear_backward(const Tensor& dy, const SavedTensor& x, const SavedTensor& w,
                          bool wants_db) {
  const Tensor dx = w ? product(dy, w.get()) : Tensor();
  const Tensor dw = x ? product(swapped(dy), x.get()) : Tensor();
  return {dx, dw, wants_db ? column_sums(dy) : Tensor()};
}

}  // namespace

Tensor linear(const Tensor& input, const Tensor& w_, const Tensor& b) {
  OpScope scope("linear");
  const Tensor x = autocast(input);
  check_floating("linear", x);
  check_parameter("linear", x, w_);
  check_dim("linear", "the weight", w_, 2);
  CHECK_AS(ShapeError, x.dim() >= 1 && x.size(-1) == w_.size(1), "linear: the input has shape ",
           x.shape(), ", the weight ", w_.shape(), ", expected the last size of the input to be ",
           w_.size(1));
  if (b) {
    check_parameter("linear", x, b);
    CHECK_AS(ShapeError, b.dim() == 1 && b.size(0) == w_.size(0), "linear: the bias has shape ",
             b.shape(), ", the weight ", w_.shape(), ", expected [", w_.size(0), "]");
  }
  if (x.dim() != 2) {
    Shape shape = x.shape();
    shape[shape.dim() - 1] = w_.size(0);
    return reshape(linear(x.dim() == 1 ? unsqueeze(x, 0) : flatten(x, 0, -2), w_, b), shape);
  }
  const Tensor rows = strided(x), w = strided(to(w_, x.dtype()));
  const Tensor bias = b ? strided_contiguous(to(b, x.dtype())) : b;
  return differentiable("linear", {rows, w, bias}, product(rows, swapped(w), bias),
                        [x = save_if(wants_grad(w), rows), w = save_if(wants_grad(rows), w),
                         wants_db = wants_grad(bias)](const Tensor& dy) -> Gradients {
                          return linear_backward(strided(dy), x, w, wants_db);
                        });
}

}  // namespace ringgrad
