#include <algorithm>
#include <array>
#include <cmath>

#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels/attention_kernels.h"
#include "ringgrad/core/program_observer.h"
#include "ringgrad/core/random.h"

namespace ringgrad {
namespace {

constexpr const char* kName = "scaled_dot_product_attention";

// The weights depend on these besides q and k. mask and state are as the kernels take them.
struct Weighing {
  kernels::AttentionRule rule;
  Tensor mask;
  Tensor state;

  Tensor dropped(const Tensor& p) const {
    return state ? ringgrad::dropped(p, state, rule.dropout_p) : p;
  }
};

Tensor turned(const Tensor& x) { return transpose(x, -2, -1); }

// Returns the weights by operations, as one matrix for each head. A query without a key has zeros.
Tensor weights_of(const Tensor& q, const Tensor& k, const Weighing& by) {
  Tensor scores = matmul(mul(q, by.rule.scale), turned(k));
  const Tensor mask =
      by.rule.is_causal ? tril(ones({q.size(-2), k.size(-2)}, {DType::Bool, q.device()})) : by.mask;
  if (mask)
    scores = mask.dtype() == DType::Bool ? where(mask, scores, -INFINITY)
                                         : add(scores, to(mask, scores.dtype()));
  if (scores.numel() == 0) return scores;
  const Mask unused = max(scores.detach(), -1, true).values == -INFINITY;
  return where(unused, 0.0, softmax(where(unused, 0.0, scores), -1));
}

Gradients by_operations(const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Weighing& by) {
  const Tensor p = weights_of(q, k, by);
  const Tensor dp = by.dropped(matmul(dy, turned(v)));
  const Tensor d = mul(mul(p, sub(dp, sum(mul(dp, p), -1, true))), by.rule.scale);
  return {matmul(d, k), matmul(turned(d), q), matmul(turned(by.dropped(p)), dy)};
}

// Allocates an array whose dimensions before the last have the order in memory of x's.
Tensor ordered_like(const Tensor& x, const Shape& shape) {
  std::array<int, 3> dims = {0, 1, 2};
  std::stable_sort(dims.begin(), dims.end(),
                   [&x](int a, int b) { return x.stride(a) < x.stride(b); });
  Strides strides = contiguous_strides(shape);
  int64_t step = shape[3];
  for (const int d : dims) {
    strides[d] = step;
    step *= shape[d];
  }
  return empty(shape, x.options()).as_strided(shape, strides, 0);
}

// A kernel reads rows whose elements are neighbours.
Tensor with_rows(const Tensor& x_) {
  const Tensor x = strided(x_);
  return x.size(-1) <= 1 || x.stride(-1) == 1 ? x : contiguous(x);
}

// q, k and v are [B, H, places, features].
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Weighing& by) {
  const Shape rows = {q.size(0), q.size(1), q.size(2)};
  const Tensor y = ordered_like(q, {rows[0], rows[1], rows[2], v.size(3)});
  const Tensor logsumexp = empty(rows, {accumulator_dtype(q.dtype()), q.device()});
  kernels::attention(y, logsumexp, q, k, v, by.mask, by.state, by.rule);
  return differentiable(
      kName, {q, k, v}, y,
      [q = save(q, 0), k = save(k, 1), v = save(v, 2), y = save(y, kSavedOutput),
       logsumexp = save(logsumexp, kSavedConstant), mask = save(by.mask, kSavedConstant),
       state = by.state, rule = by.rule](const Tensor& dy) -> Gradients {
        if (grad_enabled())
          return by_operations(dy, q.get(), k.get(), v.get(), {rule, mask.get(), state});
        const auto like = [](const SavedTensor& x) {
          return ordered_like(x.get(), x.get().shape());
        };
        const Gradients all = {like(q), like(k), like(v)};
        kernels::attention_backward(all[0], all[1], all[2], with_rows(dy), q.get(), k.get(),
                                    v.get(), y.get(), logsumexp.get(), mask.get(), state, rule);
        return all;
      });
}

Shape outer(const Tensor& x) {
  return Shape(std::span(x.shape().begin(), static_cast<size_t>(x.dim() - 2)));
}
Shape with_matrix(Shape batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q_, const Tensor& k_, const Tensor& v_,
                                    const Tensor& mask, Real dropout_p, Flag is_causal,
                                    std::optional<double> scale) {
  OpScope scope(kName);
  if (program_observer) program_observer->mode("dropout", dropout_p > 0);
  const Tensor q = autocast(q_);
  const Tensor k = autocast(k_);
  const Tensor v = autocast(v_);
  for (const Tensor* x : {&q, &k, &v}) {
    check_floating(kName, *x);
    check_same_kind(kName, q, *x);
    CHECK_AS(ShapeError, x->dim() >= 2, kName, ": an argument has shape ", x->shape(),
             ", expected [..., places, features]");
  }
  CHECK_AS(ShapeError, q.size(-1) == k.size(-1) && k.size(-2) == v.size(-2), kName, ": q is ",
           q.shape(), ", k ", k.shape(), ", v ", v.shape(),
           ", expected [..., L, E], [..., S, E] and [..., S, F]");
  CHECK(!mask || !is_causal, kName,
        ": there is a mask, and is_causal is set, expected one of them");
  CHECK(dropout_p >= 0 && dropout_p <= 1, kName, ": dropout_p is ", dropout_p,
        ", expected a number in [0, 1]");
  const Shape batch =
      broadcast_shapes(kName, broadcast_shapes(kName, outer(q), outer(k)), outer(v));
  const Shape all = with_matrix(batch, q.size(-2), k.size(-2));
  if (mask) {
    CHECK_AS(DTypeError, mask.dtype() == DType::Bool || is_floating(mask.dtype()), kName,
             ": the mask has dtype ", mask.dtype(), ", expected bool, or a floating dtype to add");
    CHECK_AS(DeviceError, mask.device() == q.device(), kName, ": the mask is on ", mask.device(),
             ", q on ", q.device(), ", expected one device; move with to(x, device)");
    CHECK_AS(ShapeError, broadcast_shapes(kName, mask.shape(), all) == all, kName,
             ": the mask has shape ", mask.shape(), ", expected one that broadcasts to ", all);
  }
  // With no features all scores are 0.
  const double factor =
      q.size(-1) == 0 ? 1 : scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
  Weighing by = {{factor, is_causal, dropout_p}, mask, {}};
  if (dropout_p > 0) by.state = default_generator(q.device()).draw(all.numel());
  // The mask's gradient is a matrix of the size of the weights.
  if (mask && wants_grad(mask)) return matmul(by.dropped(expand(weights_of(q, k, by), all)), v);

  // Two dimensions before the matrices.
  const int64_t heads = batch.dim() == 0 ? 1 : batch[batch.dim() - 1];
  const int64_t samples = heads == 0 ? 0 : batch.numel() / heads;
  const auto in_two = [&](const Tensor& x_, int64_t rows, int64_t columns) {
    const Shape whole = with_matrix(batch, rows, columns);
    const Tensor x = strided(x_);
    const Tensor repeated = x.shape() == whole ? x : expand(x, whole);
    return batch.dim() == 2 ? repeated : reshape(repeated, {samples, heads, rows, columns});
  };
  const auto operand = [&](const Tensor& x) {
    return with_rows(in_two(x, x.size(-2), x.size(-1)));
  };
  if (mask) by.mask = in_two(mask.detach(), q.size(-2), k.size(-2));
  const Tensor y = attend(operand(q), operand(k), operand(v), by);
  return batch.dim() == 2 ? y : reshape(y, with_matrix(batch, q.size(-2), v.size(-1)));
}

}  // namespace ringgrad
