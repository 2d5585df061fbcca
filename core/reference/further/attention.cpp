// Reference: attention, one query after the other.
#include "ringgrad/core/kernels/attention_kernels.h"
#include "ringgrad/core/kernels/random_elements.h"

#include <cmath>
#include <limits>
#include <optional>

#include "ringgrad/core/reference/random_state.h"

namespace ringgrad::reference {
namespace {

using kernels::AttentionRule;

// The scores and the kept weights of query i of head (b, h).
struct Weights {
  Elements<double> q;
  Elements<double> k;
  Elements<double> mask;
  bool is_bool;
  std::optional<RandomState> state;
  AttentionRule rule;
  int64_t keys;

  Weights(const Tensor& q, const Tensor& k, const Tensor& mask, const Tensor& state_in,
          const AttentionRule& rule)
      : q(q),
        k(k),
        mask(mask),
        is_bool(mask.defined() && mask.dtype() == DType::Bool),
        rule(rule),
        keys(k.size(2)) {
    if (state_in.defined()) state.emplace(state_in);
  }

  double score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    if (rule.is_causal && j > i) return kNone;
    if (is_bool && mask(b, h, i, j) == 0) return kNone;
    double product = 0;
    for (int64_t e = 0; e < q.shape()[3]; ++e) product += q(b, h, i, e) * k(b, h, j, e);
    return rule.scale * product + (is_bool ? 0 : mask.value_or(0, b, h, i, j));
  }
  // Returns z of the contract.
  double kept(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (!state) return 1;
    const int64_t place = ((b * q.shape()[1] + h) * q.shape()[2] + i) * keys + j;
    const bool is_kept =
        state->block(place, 1).word[place % 4] >= dropout_threshold(rule.dropout_p);
    return is_kept ? 1 / (1 - rule.dropout_p) : 0;
  }
};

// Calls body(b, h, i) for each query.
template <class Body>
void for_each_query(const Tensor& q, const Body& body) {
  for_each_index({q.size(0), q.size(1), q.size(2)},
                 [&](const Shape& at) { body(at[0], at[1], at[2]); });
}

void attention(Stream, const Tensor& y_out, const Tensor& logsumexp_out, const Tensor& q,
               const Tensor& k, const Tensor& v_in, const Tensor& mask, const Tensor& state,
               const AttentionRule& rule) {
  const Weights weights(q, k, mask, state, rule);
  const Elements<double> v(v_in);
  const Results<double> y(y_out);
  const Results<double> logsumexp(logsumexp_out);
  for_each_query(q, [&](int64_t b, int64_t h, int64_t i) {
    std::vector<double> scores;
    for (int64_t j = 0; j < weights.keys; ++j) scores.push_back(weights.score(b, h, i, j));
    double largest = -std::numeric_limits<double>::infinity();
    for (const double score : scores) largest = std::max(largest, score);
    if (std::isinf(largest) && largest < 0) largest = 0;
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - largest);
    logsumexp(b, h, i) =
        sum == 0 ? std::numeric_limits<double>::infinity() : largest + std::log(sum);
    for (int64_t f = 0; f < v_in.size(3); ++f) {
      double total = 0;
      for (int64_t j = 0; j < weights.keys; ++j) {
        const double p = std::exp(scores[j] - largest);
        if (p != 0) total += p / sum * weights.kept(b, h, i, j) * v(b, h, j, f);
      }
      y(b, h, i, f) = total;
    }
  });
}

void attention_backward(Stream, const Tensor& dq_out, const Tensor& dk_out, const Tensor& dv_out,
                        const Tensor& dy_in, const Tensor& q_in, const Tensor& k_in,
                        const Tensor& v_in, const Tensor& y_in, const Tensor& logsumexp_in,
                        const Tensor& mask, const Tensor& state, const AttentionRule& rule) {
  const Weights weights(q_in, k_in, mask, state, rule);
  const Elements<double> dy(dy_in);
  const Elements<double> q(q_in);
  const Elements<double> k(k_in);
  const Elements<double> v(v_in);
  const Elements<double> y(y_in);
  const Elements<double> logsumexp(logsumexp_in);
  Sums dq(dq_out.shape());
  Sums dk(dk_out.shape());
  Sums dv(dv_out.shape());
  for_each_query(q_in, [&](int64_t b, int64_t h, int64_t i) {
    double shared = 0;
    for (int64_t f = 0; f < v_in.size(3); ++f) shared += dy(b, h, i, f) * y(b, h, i, f);
    for (int64_t j = 0; j < weights.keys; ++j) {
      const double p = std::exp(weights.score(b, h, i, j) - logsumexp(b, h, i));
      if (p == 0) continue;
      const double z = weights.kept(b, h, i, j);
      double dp = 0;
      for (int64_t f = 0; f < v_in.size(3); ++f) {
        dp += dy(b, h, i, f) * v(b, h, j, f) * z;
        dv(b, h, j, f) += p * z * dy(b, h, i, f);
      }
      const double d = rule.scale * p * (dp - shared);
      for (int64_t e = 0; e < q_in.size(3); ++e) {
        dq(b, h, i, e) += d * k(b, h, j, e);
        dk(b, h, j, e) += d * q(b, h, i, e);
      }
    }
  });
  const auto write = [](const Tensor& out, Sums& sums) {
    const Results<double> to(out);
    for_each_index(out.shape(), [&](const Shape& at) { to(at) = sums(at); });
  };
  write(dq_out, dq);
  write(dk_out, dk);
  write(dv_out, dv);
}

REFERENCE(attention);
REFERENCE(attention_backward);

}  // namespace
}  // namespace ringgrad::reference
