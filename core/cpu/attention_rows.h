// Shared by forward and backward of attention: a head, a query's row of scores, and which keys it
// uses. Private to core/cpu/attention*.cpp.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "ringgrad/core/cpu/attention_tiles.h"
#include "ringgrad/core/cpu/random_words.h"
#include "ringgrad/core/cpu/vector_math.h"
#include "ringgrad/core/cpu/widen.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/kernels/attention_kernels.h"
#include "ringgrad/core/kernels/random_elements.h"

namespace ringgrad::cpu {

using kernels::AttentionRule;

// Returns head number `head` of x [B, H, rows, columns].
template <class T>
Matrix<T> head_of(const Tensor& x, int64_t head) {
  const int64_t heads = x.size(1);
  return {x.data<T>() + head / heads * x.stride(0) + head % heads * x.stride(1), x.size(2),
          x.size(3), x.stride(2)};
}

// ---- rows of scores -----------------------------------------------------------------------------
// The loops are functions of their own, which take everything by value, so that they are
// vectorised.

// s = scale s + mask, for n neighbours in a row of the mask.
template <class A, class M>
[[gnu::noinline]] void add_mask(A* s, A scale, const M* mask, int64_t stride, int64_t n) {
  const auto masked = [scale](A score, M value) {
    if constexpr (std::is_same_v<M, bool>)
      return value ? scale * score : -std::numeric_limits<A>::infinity();
    else
      return scale * score + static_cast<A>(static_cast<Accumulator<M>>(value));
  };
  if (stride == 1)
    for (int64_t j = 0; j < n; ++j) s[j] = masked(s[j], mask[j]);
  else
    for (int64_t j = 0; j < n; ++j) s[j] = masked(s[j], mask[j * stride]);
}

template <class A>
[[gnu::noinline]] void multiply_row(A* x, A factor, int64_t n) {
  for (int64_t j = 0; j < n; ++j) x[j] *= factor;
}
template <class A>
[[gnu::noinline]] void multiply_rows(A* x, const A* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) x[j] *= y[j];
}
template <class A>
[[gnu::noinline]] void add_row(A* x, const A* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) x[j] += y[j];
}

// The loops below go over whole registers, to `end`, a multiple of 16.
template <class A>
constexpr int64_t kWidth = sizeof(Register<A>) / sizeof(A);
template <class A>
UnalignedRegister<A>& registers(A* x) {
  return *reinterpret_cast<UnalignedRegister<A>*>(x);
}

// e^x, but 0 below the normal numbers. REQUIRES: x <= 88.
inline Register<float> weights_of(Register<float> x) {
  constexpr float kLeast = -87.0f;
  using Bits = int32_t __attribute__((vector_size(sizeof(x))));
  const Register<float> shifted = x * kLog2E + kRounder;
  const Register<float> n = shifted - kRounder;
  const Register<float> r = (x - n * kLn2High) - n * kLn2Low;
  const Bits power = (std::bit_cast<Bits>(shifted) - std::bit_cast<int32_t>(kRounder) + 127) << 23;
  const Register<float> y = (expm1_near_0(r) + 1.0f) * std::bit_cast<Register<float>>(power);
  return x < kLeast ? Register<float>{} : y;
}
inline Register<double> weights_of(Register<double> x) {
  for (int lane = 0; lane < kWidth<double>; ++lane) x[lane] = std::exp(x[lane]);
  return x;
}

// Folds the lanes of a register in halves.
template <class A, class Combine>
A folded(Register<A> lanes, const Combine& combine) {
  fold_register<kWidth<A> / 2>(lanes, combine, std::make_integer_sequence<int, kWidth<A>>());
  return lanes[0];
}
// Returns x with another number in all lanes but the first n.
template <class A>
Register<A> first_lanes(Register<A> x, int64_t n, A others = -std::numeric_limits<A>::infinity()) {
  using Int = std::conditional_t<sizeof(A) == sizeof(int32_t), int32_t, int64_t>;
  using Lanes __attribute__((vector_size(sizeof(x)))) = Int;
  Lanes lane;
  for (int i = 0; i < kWidth<A>; ++i) lane[i] = i;
  return lane < static_cast<Int>(n) ? x : Register<A>{} + others;
}

// n of the scores up to `end` are of keys that the query uses; the others count as -∞.
template <class A>
A largest_of(A* s, int64_t n, int64_t end) {
  const auto larger = [](auto a, auto b) { return b > a ? b : a; };
  Register<A> largest = first_lanes<A>(registers(s), n);
  for (int64_t j = kWidth<A>; j < end; j += kWidth<A>)
    largest = larger(largest, first_lanes<A>(registers(s + j), n - j));
  return folded<A>(largest, larger);
}

// s = e^(scale s - shift). Returns the sum.
template <class A>
A exponentials(A* s, A scale, A shift, int64_t n, int64_t end) {
  Register<A> sum = {};
  for (int64_t j = 0; j < end; j += kWidth<A>) {
    const Register<A> p = weights_of(first_lanes<A>(registers(s + j) * scale - shift, n - j));
    registers(s + j) = p;
    sum += p;
  }
  return folded<A>(sum, [](auto a, auto b) { return a + b; });
}

template <class A>
struct RowOfQuery {
  A scale;
  A logsumexp;
  A shared;  // Σ dy y
};
// Makes of scores s and of dy vᵀ in g: p = e^(scale s - logsumexp), g = p (g z - shared), s = p z.
// They are 0 for other keys than the first n, of which z and g may be anything.
template <bool kDrops, class A>
void slopes(A* s, A* g, const A* z, const RowOfQuery<A>& row, int64_t n, int64_t end) {
  for (int64_t j = 0; j < end; j += kWidth<A>) {
    const Register<A> p =
        weights_of(first_lanes<A>(registers(s + j) * row.scale - row.logsumexp, n - j));
    if constexpr (kDrops) {
      const Register<A> kept = at<A>(z, Neighbours<A>{j});
      registers(g + j) = first_lanes<A>(p * (registers(g + j) * kept - row.shared), n - j, A{0});
      registers(s + j) = first_lanes<A>(p * kept, n - j, A{0});
    } else {
      registers(g + j) = first_lanes<A>(p * (registers(g + j) - row.shared), n - j, A{0});
      registers(s + j) = p;
    }
  }
}

// y = factor x, rounded.
template <class T, class A>
[[gnu::noinline]] void write_row(T* y, A* x, A factor, int64_t n) {
  A* const to = wide_results<A>(y, x);
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) to[j] = factor * x[j];
  narrow_results(y, x, n);
}

// ---- what a query sees of the keys --------------------------------------------------------------

// The keys of one query in a tile, which begin at `key`.
struct RowPlace {
  int64_t head;
  int64_t query;
  int64_t key;
  int64_t keys;
};

template <class A>
class Scores {
 public:
  Scores(const Tensor& mask, const Tensor& state, int64_t queries, int64_t keys,
         const AttentionRule& rule)
      : mask_(mask),
        is_masked_(mask.defined()),
        is_causal_(rule.is_causal),
        scale_(static_cast<A>(rule.scale)),
        queries_(queries),
        keys_(keys) {
    if (!state.defined()) return;
    dropout_ = {static_cast<uint64_t>(state.data<int64_t>()[0]),
                static_cast<uint64_t>(state.data<int64_t>()[1]), dropout_threshold(rule.dropout_p),
                rule.dropout_p < 1 ? static_cast<A>(1 / (1 - rule.dropout_p)) : A{0}};
    drops_ = true;
  }

  bool drops() const { return drops_; }
  // Returns how many of `keys` keys from `key` on the queries before `end` use, without the mask.
  int64_t visible(int64_t end, int64_t key, int64_t keys) const {
    return is_causal_ ? std::clamp<int64_t>(end - key, 0, keys) : keys;
  }

  bool is_causal() const { return is_causal_; }

  // Adds the mask to scores s, scaled by then. Returns the scale that is left to do.
  A finish(A* s, const RowPlace& at) const {
    // No other scale keeps the order of scores.
    const bool is_usual = scale_ > 0;
    if (is_masked_)
      masked(s, at);
    else if (!is_usual)
      multiply_row(s, scale_, at.keys);
    return is_masked_ || !is_usual ? A{1} : scale_;
  }

  // Makes z of the contract.
  void draw(A* z, const RowPlace& at) const {
    const int64_t place = (at.head * queries_ + at.query) * keys_ + at.key;
    std::array<uint32_t, 4 * (kTileKeys / 4 + 1)> words;
    const int64_t skipped = place % 4;
    random_words(dropout_.seed, dropout_.offset + static_cast<uint64_t>(place / 4),
                 ceil_div(skipped + at.keys, 4), words.data());
    choose(z, words.data() + skipped, dropout_.threshold, dropout_.kept, at.keys);
  }

 private:
  struct Dropout {
    uint64_t seed = 0;
    uint64_t offset = 0;
    uint64_t threshold = 0;
    A kept = 1;
  };
  // s = scale s + mask.
  void masked(A* s, const RowPlace& at) const {
    const Strides& strides = mask_.strides();
    const int64_t heads = mask_.size(1);
    const int64_t offset = at.head / heads * strides[0] + at.head % heads * strides[1] +
                           at.query * strides[2] + at.key * strides[3];
    const auto add = [&]<class M>() {
      add_mask(s, scale_, mask_.data<M>() + offset, strides[3], at.keys);
    };
    if (mask_.dtype() == DType::Bool)
      add.template operator()<bool>();
    else
      visit_floating("attention", mask_.dtype(), add);
  }
  [[gnu::noinline]] static void choose(A* z, const uint32_t* words, uint64_t wide_threshold, A kept,
                                       int64_t n) {
    if (wide_threshold > UINT32_MAX) return void(std::fill_n(z, n, A{0}));
    const auto threshold = static_cast<uint32_t>(wide_threshold);
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) z[j] = words[j] >= threshold ? kept : A{0};
  }

  const Tensor& mask_;
  bool is_masked_;
  bool is_causal_;
  bool drops_ = false;
  A scale_;
  int64_t queries_;
  int64_t keys_;
  Dropout dropout_;
};

// Divides an array. Without one it only counts.
template <class A>
class Division {
 public:
  explicit Division(A* memory = nullptr) : memory_(memory) {}
  A* take(int64_t count) {
    const int64_t begin = used_;
    used_ += padded(count, kChannelBlock);
    return memory_ ? memory_ + begin : nullptr;
  }
  int64_t floats() const { return used_ * static_cast<int64_t>(sizeof(A) / sizeof(float)); }

 private:
  A* memory_;
  int64_t used_ = 0;
};

template <class A>
A* memory_of(const ThreadWorkspaces::Slice& slice) {
  return reinterpret_cast<A*>(slice.data());
}

// ---- dtypes -------------------------------------------------------------------------------------

// Calls run.operator()<T>() for the types that tiles multiply. REQUIRES: not widens().
template <class Run>
void visit_tiles(const Tensor& q, Run&& run) {
  if constexpr (conv::kMultipliesPairs)
    if (q.dtype() == DType::BFloat16) return run.template operator()<bfloat16>();
  visit_wide("attention", q.dtype(), run);
}
inline bool widens(const Tensor& q) {
  return is_16_bit(q) && !(conv::kMultipliesPairs && q.dtype() == DType::BFloat16);
}

}  // namespace ringgrad::cpu
