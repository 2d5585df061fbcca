// Comparisons, and operations on the resulting masks.
#include "ringgrad/autograd/ops.h"

#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {
namespace {

using Comparison = Kernel<void(const Tensor& y, const Tensor& a, const Tensor& b)>;

// No history is needed, because nothing here has a slope.
Tensor seen_as(const Tensor& x, const Shape& shape) {
  return broadcast_view(x.is_channel_blocked() ? as_contiguous(x) : x, shape);
}

Mask compare(const char* name, const Comparison& kernel, const Tensor& a, const Tensor& b) {
  OpScope scope(name);
  check_same_kind(name, a, b);
  const Shape shape = broadcast_shapes(name, a.shape(), b.shape());
  Tensor y = empty(shape, {DType::Bool, a.device()});
  kernel(y, seen_as(a, shape), seen_as(b, shape));
  return y;
}

Tensor choose(const Tensor& mask, const Tensor& a, const Tensor& b, const Shape& shape) {
  Tensor y = empty(shape, {a.dtype(), a.device()});
  kernels::where(y, seen_as(in_dtype(mask, a.dtype()), shape), seen_as(a, shape),
                 seen_as(b, shape));
  return y;
}

}  // namespace

Mask eq(const Tensor& a, const Tensor& b) { return compare("eq", kernels::equal, a, b); }
Mask lt(const Tensor& a, const Tensor& b) { return compare("lt", kernels::less, a, b); }
Mask le(const Tensor& a, const Tensor& b) { return compare("le", kernels::less_equal, a, b); }
// A NaN differs from itself.
Mask ne(const Tensor& a, const Tensor& b) { return logical_not(eq(a, b)); }

Mask logical_not(const Tensor& x) { return eq(x, scalar_like(x, 0)); }
Mask logical_and(const Tensor& a, const Tensor& b) {  // not b < a
  check_mask("logical_and", a, b);
  return lt(logical_not(b), a);
}
Mask logical_or(const Tensor& a, const Tensor& b) {  // not b <= a
  check_mask("logical_or", a, b);
  return le(logical_not(b), a);
}

bool equal(const Tensor& a, const Tensor& b) {
  check_same_kind("equal", a, b);
  return a.shape() == b.shape() && all(eq(a, b)).item<bool>();
}

Mask any(const Tensor& x, const Dims& dims, Flag keepdim) {
  return sum(ne(x, scalar_like(x, 0)), dims, keepdim) > 0;
}
Mask all(const Tensor& x, const Dims& dims, Flag keepdim) {
  return sum(logical_not(x), dims, keepdim) == 0;
}

Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b) {
  OpScope scope("where");
  check_same_kind("where", a, b);
  check_mask("where", mask, a);
  const Shape shape =
      broadcast_shapes("where", mask.shape(), broadcast_shapes("where", a.shape(), b.shape()));
  return differentiable("where", {a, b}, choose(mask, a, b, shape),
                        [mask = save(mask), sa = a.shape(), sb = b.shape(), wants_a = wants_grad(a),
                         wants_b = wants_grad(b)](const Tensor& dy) -> Gradients {
                          const Tensor zero = scalar_like(dy, 0);
                          const auto chosen = [&](const Tensor& a, const Tensor& b) {
                            return grad_enabled() ? where(mask.get(), a, b)
                                                  : choose(mask.get(), a, b, dy.shape());
                          };
                          return {wants_a ? summed(chosen(dy, zero), sa) : Tensor(),
                                  wants_b ? summed(chosen(zero, dy), sb) : Tensor()};
                        });
}

}  // namespace ringgrad
