// The one-dimensional transforms of the Winograd schemes (Winograd 1980; Lavin & Gray 2016, "Fast
// Algorithms for Convolutional Neural Networks"). Each is a linear map of a few vectors, 16
// channels at a time.
//
// A convolution of outputs y[0..m) with a filter w[0..r) needs m + r - 1 products in one dimension:
//   y  = Aᵀ [(G w) ⊙ (Bᵀ d)],    and for its gradients
//   dd = B [(G w) ⊙ (A dy)],
//   dw = Gᵀ [(Bᵀ d) ⊙ (A dy)],
// where A and G evaluate polynomials at m + r - 2 points and at infinity, and Bᵀ interpolates. Bᵀ
// depends on the points alone, so F(4,3) and F(2,5) share it: six products. In two dimensions each
// map is applied to rows and columns.
//
// Each map has kIn inputs and kOut outputs, which are vectors. group(i) is equal for outputs that
// share sums (see transform()).
//
// The six points are 0, ±1/√2, ±√2, ∞. Their rounding errors are half of those of the usual 0, ±1,
// ±2, ∞, at the same cost. The eight points are 0, ±1/2, ±1, ±2, ∞; their errors are four times
// those of the six.
#pragma once

#include <array>

#include "ringgrad/core/cpu/conv/vector.h"

namespace ringgrad::conv {

inline constexpr double kP = 0.70710678118654752;
inline constexpr double kQ = 1.41421356237309505;
inline constexpr double kP2 = kP * kP;
inline constexpr double kQ2 = kQ * kQ;

// The positive point of each pair, for this number of pairs.
template <int pairs>
inline constexpr std::array<double, pairs> kPoints = {};
template <>
inline constexpr std::array<double, 2> kPoints<2> = {kP, kQ};
template <>
inline constexpr std::array<double, 3> kPoints<3> = {0.5, 1, 2};

// Returns the coefficients of the polynomial Π (z - x²) over the pairs' points x, without pair
// number `without`.
template <int pairs>
constexpr std::array<double, pairs + 1> product_of_squares(int without) {
  std::array<double, pairs + 1> c = {1};
  int degree = 0;
  for (int i = 0; i < pairs; ++i) {
    if (i == without) continue;
    const double root = kPoints<pairs>[i] * kPoints<pairs>[i];
    for (int k = ++degree; k >= 0; --k)
      c[k] = (k > 0 ? c[k - 1] : 0) - (k < degree ? root * c[k] : 0);
  }
  return c;
}
// Element i leaves out pair i; the last one includes all pairs.
template <int pairs>
inline constexpr auto kProducts = [] {
  std::array<std::array<double, pairs + 1>, pairs + 1> products = {};
  for (int i = 0; i <= pairs; ++i) products[i] = product_of_squares<pairs>(i);
  return products;
}();

// 1 / Π (x - x') over all other finite points x': element i for x in pair i, the last for x = 0.
template <int pairs>
inline constexpr auto kScales = [] {
  std::array<double, pairs + 1> scales = {};
  for (int i = 0; i <= pairs; ++i) {
    const double here = i < pairs ? kPoints<pairs>[i] * kPoints<pairs>[i] : 0;
    double product = 1;
    for (int k = 0; k < pairs; ++k)
      product *= k == i ? 2 * here : here - kPoints<pairs>[k] * kPoints<pairs>[k];
    scales[i] = 1 / product;
  }
  return scales;
}();

// Returns c[first] + c[first + 2] x² + c[first + 4] x⁴ …, the even or odd part of a polynomial of n
// coefficients.
template <int n, int first>
inline Vector half_polynomial(const Vector* c, double x2) {
  constexpr int last = n - 1 - (n - 1 - first) % 2;
  Vector sum = c[last];
  RINGGRAD_UNROLL
  for (int i = last - 2; i >= first; i -= 2) sum = c[i] + static_cast<float>(x2) * sum;
  return sum;
}

// A: evaluates the polynomial with n coefficients at the points. Scaled it is G, the filter's
// transform.
template <int n, int pairs, bool kScaled = false>
struct Evaluate {
  static constexpr int kIn = n;
  static constexpr int kOut = 2 * pairs + 2;
  static constexpr int group(int i) { return (i + 1) / 2; }
  static constexpr double scale(int pair) { return kScaled ? kScales<pairs>[pair] : 1; }

  [[gnu::always_inline]] static void apply(const Vector* c, Vector* v) {
    v[0] = static_cast<float>(scale(pairs)) * c[0];
    RINGGRAD_UNROLL
    for (int i = 0; i < pairs; ++i) {
      const double x = kPoints<pairs>[i];
      Vector even = half_polynomial<n, 0>(c, x * x);
      Vector odd = half_polynomial<n, 1>(c, x * x);
      if constexpr (kScaled) even *= static_cast<float>(scale(i));
      const float at = scale(i) * x;
      v[1 + 2 * i] = even + at * odd;
      v[2 + 2 * i] = even - at * odd;
    }
    v[kOut - 1] = c[n - 1];
  }
};

// The adjoint of Evaluate, n sums over the points: Aᵀ, or scaled Gᵀ.
template <int n, int pairs, bool kScaled = false>
struct Moments {
  static constexpr int kIn = 2 * pairs + 2;
  static constexpr int kOut = n;
  static constexpr int group(int i) { return i % 2; }
  using Adjoint = Evaluate<n, pairs, kScaled>;

  [[gnu::always_inline]] static void apply(const Vector* v, Vector* c) {
    Vector sum[pairs];
    Vector diff[pairs];
    double at[pairs];  // scale · point^i for each pair
    RINGGRAD_UNROLL
    for (int k = 0; k < pairs; ++k) {
      sum[k] = v[1 + 2 * k] + v[2 + 2 * k];
      diff[k] = v[1 + 2 * k] - v[2 + 2 * k];
      at[k] = Adjoint::scale(k);
    }
    RINGGRAD_UNROLL
    for (int i = 0; i < n; ++i) {
      const auto term = [&](int k) {
        return static_cast<float>(at[k]) * (i % 2 ? diff[k] : sum[k]);
      };
      Vector total = term(pairs - 1);
      if (i == 0)
        total = static_cast<float>(Adjoint::scale(pairs)) * v[0] + total;
      else if (i == n - 1)
        total = v[kIn - 1] + total;
      RINGGRAD_UNROLL
      for (int k = pairs - 2; k >= 0; --k) total = term(k) + total;
      c[i] = total;
      RINGGRAD_UNROLL
      for (int k = 0; k < pairs; ++k) at[k] *= kPoints<pairs>[k];
    }
  }
};

// Bᵀ of every scheme with these points.
template <int pairs>
struct Interpolate {
  static constexpr int kIn = 2 * pairs + 2;
  static constexpr int kOut = kIn;
  static constexpr int group(int i) { return (i + 1) / 2; }

  // Returns Σ c[k] d[first + 2 k]. The last coefficient of c, number `degree`, is 1.
  [[gnu::always_inline]] static Vector sum(const std::array<double, pairs + 1>& c, int degree,
                                           const Vector* d) {
    Vector total = d[2 * degree];
    RINGGRAD_UNROLL
    for (int k = degree - 1; k >= 0; --k) total += static_cast<float>(c[k]) * d[2 * k];
    return total;
  }
  [[gnu::always_inline]] static void apply(const Vector* d, Vector* v) {
    v[0] = sum(kProducts<pairs>[pairs], pairs, d);
    RINGGRAD_UNROLL
    for (int i = 0; i < pairs; ++i) {
      const auto& others = kProducts<pairs>[i];
      const Vector even = sum(others, pairs - 1, d + 2);
      const Vector odd = sum(others, pairs - 1, d + 1);
      const float x = kPoints<pairs>[i];
      v[1 + 2 * i] = even + x * odd;
      v[2 + 2 * i] = even - x * odd;
    }
    v[kOut - 1] = sum(kProducts<pairs>[pairs], pairs, d + 1);
  }
};

// X -> F X Fᵀ. get(i, j) returns a vector, and put(i, row) takes a row of them. It is always
// inlined: a closure passed in memory would wait for the dozens of stores of the previous tile
// (measured: 340 cycles).
//
// F X, 36 vectors for F(4,3), may exceed the registers. The excess would be stored and loaded
// again, and a store takes as long as two loads. So its rows are computed in groups that share
// sums, and X is read again for each group: only the results are stored (Zen 4: 150 cycles instead
// of 185). This is not done if reading costs more than a load.
template <class F, bool kCheapGet = true, class Get, class Put>
[[gnu::always_inline]] inline void transform(const Get& get, const Put& put) {
  constexpr bool kInGroups = kCheapGet && F::kIn * F::kOut > kRegisters * 3 / 4;
  constexpr auto group = [](int i) { return kInGroups ? F::group(i) : 0; };
  RINGGRAD_UNROLL
  for (int g = 0; g < F::kOut; ++g) {  // a group without rows generates no code
    Vector half[F::kOut][F::kIn];
    RINGGRAD_UNROLL
    for (int j = 0; j < F::kIn; ++j) {
      Vector in[F::kIn];
      Vector out[F::kOut];
      RINGGRAD_UNROLL
      for (int i = 0; i < F::kIn; ++i) in[i] = get(i, j);
      F::apply(in, out);
      RINGGRAD_UNROLL
      for (int i = 0; i < F::kOut; ++i)
        if (group(i) == g) half[i][j] = out[i];
    }
    RINGGRAD_UNROLL
    for (int i = 0; i < F::kOut; ++i) {
      if (group(i) != g) continue;
      Vector out[F::kOut];
      F::apply(half[i], out);
      put(i, out);
    }
  }
}

// A scheme: its transforms, the edge of a tile's products, and the steps between tiles of the input
// and the output. first_output is the first output of a tile, in one dimension, that a product
// reaches.
template <int kFilter, int pairs>
struct Stride1 {
  static constexpr int kEdge = 2 * pairs + 2, kOutputStep = kEdge + 1 - kFilter,
                       kInputStep = kOutputStep;
  using Input = Interpolate<pairs>;                     // x        -> products
  using Output = Moments<kOutputStep, pairs>;           // products -> y
  using OutputAdjoint = Evaluate<kOutputStep, pairs>;   // dy       -> products
  using Filter = Evaluate<kFilter, pairs, true>;        // w        -> factors
  using FilterAdjoint = Moments<kFilter, pairs, true>;  // factors  -> dw
  static constexpr int first_output(int product) {
    return product == kEdge - 1 ? kOutputStep - 1 : 0;
  }
};
using F43 = Stride1<3, 2>;  // 36 products for 16 outputs of a 3 x 3 filter: 2.25 instead of 9 each
using F25 = Stride1<5, 2>;  // 36 products for 4 outputs of a 5 x 5 filter: 9 instead of 25 each
using F45 = Stride1<5, 3>;  // 64 products for 16 outputs of a 5 x 5 filter: 4 instead of 25 each

// Factors form a square. If a scheme has more products (stride 2: 9 x 9 products, 6 x 6 factors),
// those with a coordinate beyond the last share its factors.
template <class Scheme>
inline constexpr int kFactorEdge = Scheme::Filter::kOut;
template <class Scheme>
constexpr int factor_of(int product) {
  constexpr int last = kFactorEdge<Scheme> - 1;
  const int i = product / Scheme::kEdge;
  const int j = product % Scheme::kEdge;
  return (i < last ? i : last) * (last + 1) + (j < last ? j : last);
}

}  // namespace ringgrad::conv
