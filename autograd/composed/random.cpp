// Orders and places drawn at random: sorting by random keys.
#include <cmath>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {

// Uniform in [0, 1), of 48 bits: two equal keys would leave an order to chance that is none.
static Tensor fine_uniform(const Shape& shape, Device device) {
  return add(rand(shape, {DType::Float64, device}), mul(rand(shape, {DType::Float64, device}), 0x1p-24));
}

Tensor randperm(int64_t n, TensorOptions options) {
  CHECK_AS(ShapeError, n >= 0, "randperm: ", n, " numbers, expected at least 0");
  return to(argsort(fine_uniform({n}, options.device)), options.dtype);
}

Tensor multinomial(const Tensor& weights_, int64_t count, bool replacement) {
  NoGradGuard no_grad;
  check_floating("multinomial", weights_);
  CHECK_AS(ShapeError, weights_.dim() == 1 || weights_.dim() == 2, "multinomial: the weights have shape ",
           weights_.shape(), ", expected [N, C] or [C]");
  if (weights_.dim() == 1) return squeeze(multinomial(unsqueeze(weights_, 0), count, replacement), 0);
  const Tensor weights = to(weights_, DType::Float64);
  const int64_t rows = weights.size(0), classes = weights.size(1);
  CHECK(count >= 1 && (replacement || count <= classes), "multinomial: ", count, " draws from ", classes,
        " classes, expected at least 1 and without replacement no more than there are");
  if (weights.device().is_cpu()) {
    const Tensor positive = sum(weights > 0, 1);
    CHECK(all((weights >= 0) & (weights < INFINITY)).item<bool>() && all(positive > 0).item<bool>() &&
              (replacement || all(positive >= static_cast<double>(count)).item<bool>()),
          "multinomial: a row has a weight that is negative, infinite or NaN, or fewer above 0 than the draws take, ",
          replacement ? 1 : count);
  }
  if (!replacement) {  // the first after waits that are exponentially distributed with these rates (Efraimidis 2006)
    const Tensor waits = neg(log(add(fine_uniform(weights.shape(), weights.device()), 0x1p-49)));
    return topk(div(waits, weights), count, 1, false).indices;
  }
  const Tensor total = cumsum(weights, 1);  // the first whose running sum is above a uniform part of the whole
  const Tensor drawn = mul(fine_uniform({rows, count}, weights.device()), slice(total, 1, classes - 1));
  return sum(unsqueeze(total, 1) <= unsqueeze(drawn, 2), 2);
}

}  // namespace ringgrad
