#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/gradient_home.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

// [B, M, N] → [M, B N]: places the batches side by side, so that a sum over them is part of one
// product and rounded once.
Tensor side_by_side(const Tensor& x) {
  return reshape(permute(x, {1, 0, 2}), {x.size(1), x.size(0) * x.size(2)});
}

// The gradients of matmul(a, b) where a graph of them is asked for: without b not that of a, and
// the other way round. `repeated`: a is one matrix for all of b.
Gradients gradients(const Tensor& dy, const Tensor& a, const Tensor& b, bool repeated) {
  const auto turned = [](const Tensor& x) { return transpose(x, -2, -1); };
  Tensor da;
  if (b && repeated)
    da = matmul(side_by_side(dy), turned(side_by_side(b)));
  else if (b)
    da = matmul(dy, turned(b));
  return {da, a ? matmul(turned(a), dy) : Tensor()};
}

// Multiplies batches of matrices, whose leading dimensions are broadcast.
Tensor of_batches(const Tensor& a, const Tensor& b) {
  const auto outer = [](const Tensor& x) {
    return Shape(std::span(x.shape().begin(), static_cast<size_t>(x.dim() - 2)));
  };
  Shape batch = broadcast_shapes("matmul", outer(a), outer(b));
  const int64_t count = batch.numel();
  // A single matrix is not repeated.
  const auto matrices = [&](const Tensor& x) {
    const int64_t rows = x.size(-2);
    const int64_t columns = x.size(-1);
    if (outer(x).numel() == 1) return reshape(x, {rows, columns});
    Shape shape = batch;
    shape.push_back(rows);
    shape.push_back(columns);
    return reshape(expand(x, shape), {count, rows, columns});
  };
  Tensor left = matrices(a);
  Tensor right = matrices(b);
  if (left.dim() == 2 && right.dim() == 2) left = expand(unsqueeze(left, 0), {count, -1, -1});
  batch.push_back(a.size(-2));
  batch.push_back(b.size(-1));
  return reshape(matmul(left, right), batch);
}

}  // namespace

Tensor matmul(const Tensor& left, const Tensor& right) {
  OpScope scope("matmul");
  const Tensor a_ = autocast(left);
  const Tensor b_ = autocast(right);
  check_same_kind("matmul", a_, b_);
  check_floating("matmul", a_);
  for (const Tensor* x : {&a_, &b_})
    CHECK_AS(ShapeError, x->dim() >= 1, "matmul: an operand is a number, of shape ", x->shape(),
             ", expected at least 1 dimension; mul() takes numbers");
  if (a_.dim() == 1) return squeeze(matmul(unsqueeze(a_, 0), b_), b_.dim() == 1 ? 0 : -2);
  if (b_.dim() == 1) return squeeze(matmul(a_, unsqueeze(b_, 1)), -1);
  CHECK_AS(ShapeError, a_.size(-1) == b_.size(-2), "matmul: inner sizes differ: a is ", a_.shape(),
           ", b is ", b_.shape(), ", expected a.size(-1) == b.size(-2)");
  const bool is_broadcast = a_.dim() == 3 && b_.dim() == 3 && a_.size(0) != b_.size(0);
  if (a_.dim() > 3 || b_.dim() > 3 || is_broadcast) return of_batches(a_, b_);
  // This is one product of B·M rows, and its gradients need no sum over the batch.
  if (a_.dim() == 3 && b_.dim() == 2)
    return reshape(matmul(flatten(a_, 0, 1), b_), {a_.size(0), a_.size(1), b_.size(1)});

  const Tensor a = strided(a_);
  const Tensor b = strided(b_);
  return differentiable(
      "matmul", {a, b}, matrix_product(a, b),
      [a = save_if(wants_grad(b), a, 0), b = save_if(wants_grad(a), b, 1), a_home = GradientHome(a),
       b_home = GradientHome(b), repeated = a.dim() < b.dim()](const Tensor& dy_) -> Gradients {
        const Tensor dy = strided(dy_);
        const Tensor& left = a.get();
        const Tensor& right = b.get();
        if (grad_enabled()) return gradients(dy, left, right, repeated);
        Tensor da;
        Tensor db;
        if (right) {
          const auto rows = [&](const Tensor& x) { return repeated ? side_by_side(x) : x; };
          da = matrix_product(rows(dy), swapped_matrix(rows(right)), {}, a_home.claim());
        }
        if (left) db = matrix_product(swapped_matrix(left), dy, {}, b_home.claim());
        return {da, db};
      });
}

}  // namespace ringgrad
