// Attention: matrix products around a softmax.
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& mask, Real dropout_p, Flag is_causal,
                                    std::optional<double> scale) {
  const char* const name = "scaled_dot_product_attention";
  for (const Tensor* x : {&q, &k, &v}) {
    check_floating(name, *x);
    CHECK_AS(ShapeError, x->dim() >= 2, name, ": an argument has shape ", x->shape(),
             ", expected [..., places, features]");
  }
  CHECK(!mask || !is_causal, name, ": there is a mask, and is_causal is set, expected one of them");
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
  Tensor scores = matmul(mul(q, factor), transpose(k, -2, -1));
  const Tensor allowed =
      is_causal ? tril(ones({q.size(-2), k.size(-2)}, {DType::Bool, q.device()})) : mask;
  if (allowed && allowed.dtype() == DType::Bool)
    scores = where(allowed, scores, -INFINITY);
  else if (allowed)
    scores = add(scores, allowed);
  return matmul(dropout(softmax(scores, -1), dropout_p, dropout_p > 0), v);
}

}  // namespace ringgrad
