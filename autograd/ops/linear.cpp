#include "ringgrad/autograd/gradient_home.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

// Returns a 2-D matrix as a batch of B times the same one (stride 0), and a 3-D tensor unchanged.
Tensor as_batch(const Tensor& x, int64_t batch) {
  return broadcast_view(x, {batch, x.size(-2), x.size(-1)});
}

}  // namespace

Tensor swapped_matrix(const Tensor& x) {  // the last two dimensions, without history
  Shape shape = x.shape();
  Strides strides = x.strides();
  const int d = x.dim() - 2;
  std::swap(shape[d], shape[d + 1]);
  std::swap(strides[d], strides[d + 1]);
  return x.as_strided(shape, strides, x.storage_offset());
}

Tensor matrix_product(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& to) {
  Shape shape = a.dim() == 3 ? a.shape() : b.shape();
  const int64_t batch = shape.dim() == 3 ? shape[0] : 1;
  shape[shape.dim() - 2] = a.size(-2);
  shape[shape.dim() - 1] = b.size(-1);
  const Tensor c = to ? to : empty(shape, {a.dtype(), a.device()});
  kernels::matmul(as_batch(c, batch), as_batch(a, batch), as_batch(b, batch), bias);
  return c;
}

namespace {

// The gradients of y = x · wᵀ + b for dy [N, out]: dx, dw and db, each undefined if it is not
// needed. dx needs w, and dw needs x. Each of the two is saved only if the other's gradient is
// needed. dw is written where it belongs, if that may be claimed.
Gradients linear_backward(const Tensor& dy, const Tensor& x, const Tensor& w, bool wants_db,
                          const GradientHome& home) {
  return {w ? matrix_product(dy, w) : Tensor(),
          x ? matrix_product(swapped_matrix(dy), x, {}, home.claim()) : Tensor(),
          wants_db ? sum_to(dy, {dy.size(1)}) : Tensor()};
}

}  // namespace

Tensor linear(const Tensor& input, const Tensor& w_, const Tensor& b) {
  OpScope scope("linear");
  const Tensor x = product_input(input);
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
    return reshape(linear(x.dim() == 1 ? reshape(x, {1, x.size(0)}) : flatten(x, 0, -2), w_, b),
                   shape);
  }
  const Tensor rows = strided(x);
  const Tensor w = strided(to(w_, x.dtype()));
  const Tensor bias = b ? strided_contiguous(to(b, x.dtype())) : b;
  return differentiable(
      "linear", {rows, w, bias}, matrix_product(rows, swapped_matrix(w), bias),
      [x = save_if(wants_grad(w), rows, 0), w = save_if(wants_grad(rows), w, 1),
       home = GradientHome(w), wants_db = wants_grad(bias)](const Tensor& dy) -> Gradients {
        if (grad_enabled()) return twice->linear(dy, x.get(), w.get());
        return linear_backward(strided(dy), x.get(), w.get(), wants_db, home);
      });
}

}  // namespace ringgrad
