// Nonlinearities composed of other operations.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/random_tensors.h"

namespace ringgrad {

Tensor hardsigmoid(const Tensor& x) {
  check_floating("hardsigmoid", x);
  return clamp(add(mul(x, 1.0 / 6), 0.5), 0, 1);
}

Tensor selu(const Tensor& x) { return mul(elu(x, 1.6732632423543772848), 1.0507009873554804934); }

Tensor celu(const Tensor& x, Real alpha) {
  CHECK(alpha > 0, "celu: alpha is ", alpha, ", expected a number above 0");
  return mul(elu(mul(x, 1 / alpha)), double{alpha});
}

Tensor softsign(const Tensor& x) {
  check_floating("softsign", x);
  return div(x, add(abs(x), 1));
}

Tensor hardshrink(const Tensor& x, Real lambda) {
  check_floating("hardshrink", x);
  return where(le(abs(x.detach()), double{lambda}), 0, x);  // NaN stays
}

Tensor glu(const Tensor& x, Int dim) {
  check_floating("glu", x);
  dim = normalize_dim("glu", dim, x.dim());
  CHECK_AS(ShapeError, x.size(dim) % 2 == 0, "glu: dimension ", dim, " of shape ", x.shape(),
           " has ", x.size(dim), " elements, expected an even number");
  const int64_t half = x.size(dim) / 2;
  return mul(slice(x, dim, 0, half), sigmoid(slice(x, dim, half)));
}

Tensor gumbel_softmax(const Tensor& x, Real tau, Flag hard, Int dim) {
  check_floating("gumbel_softmax", x);
  CHECK(tau > 0, "gumbel_softmax: tau is ", tau, ", expected a number above 0");
  // Gumbel noise is -log of an exponentially distributed number. 1 - u is never 0, but its
  // logarithm may be.
  const Tensor waits = neg(log1p(neg(rand(x.shape(), {DType::Float64, x.device()}))));
  const Tensor noise = to(neg(log(clamp_min(waits, 1e-300))), x.dtype());
  const Tensor soft = softmax(mul(add(x, noise), 1 / tau), dim);
  if (!hard) return soft;
  const Tensor chosen = scatter(zeros_like(soft.detach()), dim, argmax(soft.detach(), dim, true),
                                ones_like(max(soft.detach(), dim, true).values));
  return add(sub(chosen, soft.detach()), soft);
}

}  // namespace ringgrad
