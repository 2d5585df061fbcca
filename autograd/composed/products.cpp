// Products of elements. They are composed of products of pairs, whose gradients need no division.
// So gradients are exact even if elements are 0.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

DType dtype_of_product(const char* name, const Tensor& x) {
  check_defined(name, x);
  return is_floating(x.dtype()) ? x.dtype() : DType::Int64;
}
// Returns the dtype in which a product is computed. The product of a pair may leave the range of
// narrower dtypes although the whole product does not. Results are rounded once, at the end.
DType wide_dtype(DType dtype) { return is_floating(dtype) ? DType::Float64 : dtype; }

}  // namespace

// Multiplies one half of the elements by the other half, until one is left.
Tensor prod(const Tensor& x, Int dim, Flag keepdim) {
  OpScope scope("prod");
  const DType dtype = dtype_of_product("prod", x);
  if (x.dim() == 0) return prod(reshape(x, {1}), dim);
  dim = normalize_dim("prod", dim, x.dim());
  Tensor y =
      to(x.size(dim) == 1 ? clone(x) : x, wide_dtype(dtype));  // the result is never x itself
  if (x.size(dim) == 0) y = add(sum(y, dim, true), 1);
  Tensor odd;
  for (int64_t n = y.size(dim); n > 1; n /= 2) {
    if (n % 2 == 1) {
      const Tensor last = slice(y, dim, n - 1);
      odd = odd ? mul(odd, last) : last;
    }
    y = mul(slice(y, dim, 0, n / 2), slice(y, dim, n / 2, n / 2 * 2));
  }
  if (odd) y = mul(y, odd);
  return to(keepdim ? y : squeeze(y, dim), dtype);
}

Tensor prod(const Tensor& x) {
  check_defined("prod", x);
  return prod(reshape(x, {x.numel()}), 0);
}

// After the step of length s each element is the product of the 2 s elements up to and including it
// (Hillis & Steele 1986).
Tensor cumprod(const Tensor& x, Int dim) {
  OpScope scope("cumprod");
  const DType dtype = dtype_of_product("cumprod", x);
  if (x.dim() == 0) return reshape(cumprod(reshape(x, {1}), dim), {});
  dim = normalize_dim("cumprod", dim, x.dim());
  const int64_t n = x.size(dim);
  Tensor y = to(x, wide_dtype(dtype));
  for (int64_t s = 1; s < n; s *= 2)
    y = cat({slice(y, dim, 0, s), mul(slice(y, dim, s), slice(y, dim, 0, n - s))}, dim);
  return n > 1 ? to(y, dtype) : clone(to(y, dtype));
}

}  // namespace ringgrad
