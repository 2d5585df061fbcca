// The one-dimensional transforms of the Winograd schemes (Winograd 1980; Lavin & Gray 2016, "Fast Algorithms for
// Convolutional Neural Networks"), each a linear map of a few vectors, 16 channels at a time.
//
// A convolution of outputs y[0..m) with a filter w[0..r) needs m + r - 1 products in one dimension:
//   y = Aᵀ [(G w) ⊙ (Bᵀ d)],  and for its gradients  dd = B [(G w) ⊙ (A dy)],  dw = Gᵀ [(Bᵀ d) ⊙ (A dy)]
// where A and G evaluate polynomials at m + r - 2 points and at infinity, and Bᵀ interpolates. Bᵀ depends on the points
// alone, so F(4,3) and F(2,5) share it: six products. In two dimensions each map is applied to rows and columns.
//
// The points are 0, ±1/√2, ±√2, ∞: rounding errors are half of those with the usual 0, ±1, ±2, ∞, at the same cost.
#pragma once

#include "ringgrad/core/cpu/conv/vector.h"

namespace ringgrad::conv {

inline constexpr double kP = 0.70710678118654752, kQ = 1.41421356237309505;
inline constexpr double kP2 = kP * kP, kQ2 = kQ * kQ;

// c[first] + c[first + 2] x² + c[first + 4] x⁴ …, the even or odd part of a polynomial of n coefficients
template <int n, int first>
inline Vector half_polynomial(const Vector* c, double x2) {
  constexpr int last = n - 1 - (n - 1 - first) % 2;
  Vector sum = c[last];
  RINGGRAD_UNROLL
  for (int i = last - 2; i >= first; i -= 2) sum = c[i] + static_cast<float>(x2) * sum;
  return sum;
}

// Values at the six points of the polynomial with n coefficients: A. Scaled, as the filter's transform wants it: G.
template <int n, bool kScaled = false>
struct Evaluate {
  static constexpr int kIn = n, kOut = 6;
  static constexpr double kAt0 = kScaled ? 1 / (kP2 * kQ2) : 1;
  static constexpr double kAtP = kScaled ? 1 / (2 * kP2 * (kP2 - kQ2)) : 1;
  static constexpr double kAtQ = kScaled ? 1 / (2 * kQ2 * (kQ2 - kP2)) : 1;

  [[gnu::always_inline]] static void apply(const Vector* c, Vector* v) {
    Vector even_p = half_polynomial<n, 0>(c, kP2), odd_p = half_polynomial<n, 1>(c, kP2);
    Vector even_q = half_polynomial<n, 0>(c, kQ2), odd_q = half_polynomial<n, 1>(c, kQ2);
    if constexpr (kScaled) even_p *= static_cast<float>(kAtP), even_q *= static_cast<float>(kAtQ);
    const float p = kAtP * kP, q = kAtQ * kQ;
    v[0] = static_cast<float>(kAt0) * c[0];
    v[1] = even_p + p * odd_p;
    v[2] = even_p - p * odd_p;
    v[3] = even_q + q * odd_q;
    v[4] = even_q - q * odd_q;
    v[5] = c[n - 1];
  }
};

// The adjoint of Evaluate, n sums over the six points: Aᵀ, and scaled Gᵀ.
template <int n, bool kScaled = false>
struct Moments {
  static constexpr int kIn = 6, kOut = n;
  using Adjoint = Evaluate<n, kScaled>;

  [[gnu::always_inline]] static void apply(const Vector* v, Vector* c) {
    Vector sum_p = v[1] + v[2], diff_p = v[1] - v[2], sum_q = v[3] + v[4], diff_q = v[3] - v[4];
    double p = Adjoint::kAtP, q = Adjoint::kAtQ;  // times the point to the power i
    RINGGRAD_UNROLL
    for (int i = 0; i < n; ++i, p *= kP, q *= kQ) {
      const Vector at_q = static_cast<float>(q) * (i % 2 ? diff_q : sum_q);
      const Vector rest = i == 0 ? static_cast<float>(Adjoint::kAt0) * v[0] + at_q : i == n - 1 ? v[5] + at_q : at_q;
      c[i] = static_cast<float>(p) * (i % 2 ? diff_p : sum_p) + rest;
    }
  }
};

// Bᵀ of every scheme with these six points.
struct Interpolate {
  static constexpr int kIn = 6, kOut = 6;
  [[gnu::always_inline]] static void apply(const Vector* d, Vector* v) {
    const float p = kP, q = kQ, p2 = kP2, q2 = kQ2, sum = kP2 + kQ2, product = kP2 * kQ2;
    const Vector even_p = d[4] - q2 * d[2], odd_p = d[3] - q2 * d[1];
    const Vector even_q = d[4] - p2 * d[2], odd_q = d[3] - p2 * d[1];
    v[0] = product * d[0] + (d[4] - sum * d[2]);
    v[1] = even_p + p * odd_p;
    v[2] = even_p - p * odd_p;
    v[3] = even_q + q * odd_q;
    v[4] = even_q - q * odd_q;
    v[5] = product * d[1] + (d[5] - sum * d[3]);
  }
};

// X -> F X Fᵀ: get(i, j) yields a vector, put(i, j, v) takes one. Always inlined: a closure passed in memory would wait
// for the dozens of stores of the tile before it (measured: 340 cycles).
template <class F, class Get, class Put>
[[gnu::always_inline]] inline void transform(const Get& get, const Put& put) {
  Vector half[F::kOut][F::kIn];
  RINGGRAD_UNROLL
  for (int j = 0; j < F::kIn; ++j) {
    Vector in[F::kIn], out[F::kOut];
    RINGGRAD_UNROLL
    for (int i = 0; i < F::kIn; ++i) in[i] = get(i, j);
    F::apply(in, out);
    RINGGRAD_UNROLL
    for (int i = 0; i < F::kOut; ++i) half[i][j] = out[i];
  }
  RINGGRAD_UNROLL
  for (int i = 0; i < F::kOut; ++i) {
    Vector out[F::kOut];
    F::apply(half[i], out);
    RINGGRAD_UNROLL
    for (int j = 0; j < F::kOut; ++j) put(i, j, out[j]);
  }
}

// A scheme: its transforms, the edge of a tile's products, and the steps between tiles of the input and the output.
template <int kFilter>
struct Stride1 {
  static constexpr int kEdge = 6, kOutputStep = 7 - kFilter, kInputStep = kOutputStep;
  using Input = Interpolate;                     // x        -> products
  using Output = Moments<kOutputStep>;           // products -> y
  using OutputAdjoint = Evaluate<kOutputStep>;   // dy       -> products
  using Filter = Evaluate<kFilter, true>;        // w        -> factors
  using FilterAdjoint = Moments<kFilter, true>;  // factors  -> dw
};
using F43 = Stride1<3>;  // 36 products for 16 outputs of a 3 x 3 filter: 2.25 instead of 9 each
using F25 = Stride1<5>;  // 36 products for 4 outputs of a 5 x 5 filter: 9 instead of 25 each

// Factors form a square of 6 x 6 whatever the scheme. Where a scheme has more products (stride 2), those with a
// coordinate beyond 5 share the factors of coordinate 5.
template <class Scheme>
constexpr int factor_of(int product) {
  const int i = product / Scheme::kEdge, j = product % Scheme::kEdge;
  return (i < 5 ? i : 5) * 6 + (j < 5 ? j : 5);
}

}  // namespace ringgrad::conv
