// Random permutations and draws by weight.
#include <bit>
#include <cmath>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/random_tensors.h"

namespace ringgrad {

// Sorts random keys of 64 bits. Two equal keys, whose order would not be random, are too rare to
// matter.
Tensor randperm(Int64 n, TensorOptions options) {
  CHECK_AS(ShapeError, n >= 0, "randperm: ", n, " numbers, expected at least 0");
  const Tensor order = argsort(randint(INT64_MIN, INT64_MAX, {n}, {DType::Int64, options.device}));
  const Tensor numbers = to(order, options.dtype);
  CHECK_AS(DTypeError, options.dtype == DType::Int64 || equal(to(numbers, DType::Int64), order),
           "randperm: dtype ", options.dtype, " cannot hold all numbers below ", n);
  return numbers;
}

// Returns, for each element of drawn [N, count], how many sums in its row of `sums` [N, C] are not
// above it, at most C - 1. The sums of a row rise, so that a binary search finds the place.
static Tensor places_of(const Tensor& drawn, const Tensor& sums) {
  const int64_t last = sums.size(1) - 1;
  Tensor place = zeros(drawn.shape(), {DType::Int64, drawn.device()});
  for (int64_t step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(last))); step > 0;
       step /= 2) {
    const Tensor further = clamp(place + step, 0, last);
    place = where(gather(sums, 1, further - 1) <= drawn, further, place);
  }
  return place;
}

Tensor multinomial(const Tensor& weights_, Int64 count, Flag replacement) {
  NoGradGuard no_grad;
  check_floating("multinomial", weights_);
  CHECK_AS(ShapeError, weights_.dim() == 1 || weights_.dim() == 2,
           "multinomial: the weights have shape ", weights_.shape(), ", expected [N, C] or [C]");
  if (weights_.dim() == 1)
    return squeeze(multinomial(unsqueeze(weights_, 0), count, replacement), 0);
  const Tensor weights = to(weights_, DType::Float64);
  const int64_t rows = weights.size(0);
  const int64_t classes = weights.size(1);
  CHECK(count >= 1 && (replacement || count <= classes), "multinomial: ", count, " draws from ",
        classes, " classes, expected at least 1 and without replacement no more than there are");
  if (weights.device().is_cpu()) {
    const Tensor positive = sum(weights > 0, 1);
    CHECK(all((weights >= 0) & (weights < INFINITY)).item<bool>() &&
              all(positive > 0).item<bool>() &&
              (replacement || all(positive >= count).item<bool>()),
          "multinomial: a row has a weight that is negative, infinite or NaN, "
          "or fewer above 0 than the draws take, ",
          replacement ? 1 : int64_t{count});
  }
  const Tensor shares = weights / max(weights, 1, true).values;  // avoids overflow of sums
  // Takes the first positions after exponentially distributed waits with these rates (Efraimidis
  // 2006).
  if (!replacement) {
    const Tensor waits = neg(log1p(neg(rand(weights.shape(), weights.options()))));
    // NaN sorts last.
    return topk(where(shares > 0, waits / shares, NAN), count, 1, false).indices;
  }
  const Tensor sums = cumsum(shares, 1);  // the first sum above a uniform part of the total
  const Tensor part = rand({rows, count}, {DType::Float64, weights.device()});
  return places_of(part * slice(sums, 1, classes - 1), sums);
}

}  // namespace ringgrad
