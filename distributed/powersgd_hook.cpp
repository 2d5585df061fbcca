#include "ringgrad/distributed/powersgd_hook.h"

#include <cmath>
#include <random>
#include <vector>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad {
namespace {

// The state of one bucket from step to step, in one array that the ranks share.
struct LowRank {
  // [side, side]: first what is to travel, then what has not travelled. Zeros follow the bucket's n
  // numbers.
  Tensor m;
  Tensor own;  // [n]: those of it that are gradients
  // [side, columns]
  Tensor p;
  Tensor q;
};

LowRank parts_of(const Tensor& state, int64_t n, int64_t side, int64_t columns) {
  const auto matrix = [&](int64_t begin, int64_t width) {
    return state.as_strided({side, width}, {width, 1}, begin);
  };
  return {matrix(0, side), narrow(state, 0, 0, n), matrix(side * side, columns),
          matrix(side * (side + columns), columns)};
}

// Any directions are good, if they are the same on all ranks. So no generator is drawn from.
void begin_anywhere(const Tensor& q) {
  std::mt19937 random(1);
  std::vector<double> values(static_cast<size_t>(q.numel()));
  for (double& value : values) value = static_cast<double>(random()) / 0x1p31 - 1;
  copy_(q, tensor(values, q.shape()));
}

// Orthogonalizes by Gram and Schmidt, column by column, each twice: the small remainder of a column
// that depends on earlier ones would consist of their rounding errors. A column of zeros stays
// zero.
void orthogonalize(const Tensor& p) {
  for (int64_t i = 0; i < p.size(1); ++i) {
    const Tensor column = narrow(p, 1, i, 1);
    for (int time = 0; time < 2; ++time) {
      for (int64_t j = 0; j < i; ++j) {
        const Tensor before = narrow(p, 1, j, 1);
        copy_(column, column - sum(column * before) * before);
      }
      copy_(column, column / (norm(column) + 1e-30));
    }
  }
}

// After the sum of P: all ranks have the same P, and so the same of everything but M.
void finish(const GradBucket& bucket, const LowRank& x) {
  const NoGradGuard no_grad;
  orthogonalize(x.p);
  copy_(x.q, matmul(transpose(x.m, 0, 1), x.p));
  bucket.average(x.q).wait();
  const Tensor low = narrow(flatten(matmul(x.p, transpose(x.q, 0, 1))), 0, 0, x.own.numel());
  copy_(bucket.flat, low);
  copy_(x.own, x.own - low);
  const double size = sum(x.q * x.q).item<double>();
  if (!std::isfinite(size)) fill_(x.own, 0);
  if (!std::isfinite(size) || size == 0) begin_anywhere(x.q);  // nothing comes of zeros but zeros
}

}  // namespace

CommHook powersgd_hook(Int64 columns) {
  CHECK(columns > 0, "powersgd_hook: ", columns, " columns, expected at least one");
  return [columns](const GradBucket& bucket) {
    const NoGradGuard no_grad;
    const Tensor& flat = bucket.flat;
    const int64_t n = flat.numel();
    const int64_t side = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
    if (itemsize(flat.dtype()) < 4 || columns >= (side + 3) / 4) return bucket.average(flat);
    const bool fresh = bucket.begin_scratch(side * (side + 2 * columns), flat.dtype());
    const LowRank x = parts_of(bucket.scratch, n, side, columns);
    if (fresh) begin_anywhere(x.q);
    copy_(x.own, x.own + flat);
    copy_(x.p, matmul(x.m, x.q));
    return then(bucket.average(x.p), [bucket, x] { finish(bucket, x); });
  };
}

}  // namespace ringgrad
