// The Winograd scheme for 3 x 3 filters with stride 2 and padding 1.
//
// In one dimension, output p = w0 x[2p-1] + w1 x[2p] + w2 x[2p+1]. The outer taps multiply the odd
// columns of x: a stride-1 convolution of two taps, F(4,2), whose five products use the points
// ±1/√2, ±√2, ∞. The middle tap multiplies the even columns, in four products. So 4 outputs take 9
// products instead of 12, and 4 x 4 take 81 instead of 144. The four products with the middle tap
// share its factor, so factors form a square of 6 x 6 as in the schemes for stride 1.
#pragma once

#include "ringgrad/core/cpu/conv/transforms.h"

namespace ringgrad::conv {

inline constexpr double kScaleP = 1 / (2 * kP * (kP2 - kQ2));
inline constexpr double kScaleQ = 1 / (2 * kQ * (kQ2 - kP2));

// Aᵀ of F(4,2): four outputs from the five products.
inline void moments_of_five(const Vector* v, Vector* y) {
  const float p = kP;
  const float q = kQ;
  const float p2 = kP2;
  const float q2 = kQ2;
  const float p3 = kP * kP2;
  const float q3 = kQ * kQ2;
  const Vector sum_p = v[0] + v[1];
  const Vector diff_p = v[0] - v[1];
  const Vector sum_q = v[2] + v[3];
  const Vector diff_q = v[2] - v[3];
  y[0] = sum_p + sum_q;
  y[1] = p * diff_p + q * diff_q;
  y[2] = p2 * sum_p + q2 * sum_q;
  y[3] = p3 * diff_p + (q3 * diff_q + v[4]);
}

// The input's transform: Bᵀ of F(4,2), five products from d[0], d[kStep], … d[4 kStep], and the
// four middle columns.
//   kStep 2   x -> products, from columns 2p - 1 … 2p + 7
//   kStep 1   dy -> products for the data gradient, from columns p … p + 4
template <int kStep>
struct InputStride2 {
  static constexpr int kIn = 4 * kStep + 1;
  static constexpr int kOut = 9;
  static constexpr int group(int i) { return i / 2; }
  [[gnu::always_inline]] static void apply(const Vector* d, Vector* v) {
    const float p = kP;
    const float q = kQ;
    const float p2 = kP2;
    const float q2 = kQ2;
    const float sum = kP2 + kQ2;
    const float product = kP2 * kQ2;
    const Vector odd_p = d[3 * kStep] - q2 * d[kStep];
    const Vector even_p = d[2 * kStep] - q2 * d[0];
    const Vector odd_q = d[3 * kStep] - p2 * d[kStep];
    const Vector even_q = d[2 * kStep] - p2 * d[0];
    v[0] = odd_p + p * even_p;
    v[1] = odd_p - p * even_p;
    v[2] = odd_q + q * even_q;
    v[3] = odd_q - q * even_q;
    v[4] = product * d[0] + (d[4 * kStep] - sum * d[2 * kStep]);
    RINGGRAD_UNROLL
    for (int i = 0; i < 4; ++i) v[5 + i] = d[kStep * (i + 1) - 1];
  }
};
// products -> y
struct OutputStride2 {
  static constexpr int kIn = 9;
  static constexpr int kOut = 4;
  static constexpr int group(int i) { return i % 2; }
  [[gnu::always_inline]] static void apply(const Vector* v, Vector* y) {
    moments_of_five(v, y);
    RINGGRAD_UNROLL
    for (int i = 0; i < 4; ++i) y[i] += v[5 + i];
  }
};
// dy -> products, the adjoint of OutputStride2
struct OutputAdjointStride2 {
  static constexpr int kIn = 4;
  static constexpr int kOut = 9;
  static constexpr int group(int i) { return i / 2; }
  [[gnu::always_inline]] static void apply(const Vector* y, Vector* v) {
    const float p = kP;
    const float q = kQ;
    const float p2 = kP2;
    const float q2 = kQ2;
    const Vector even_p = y[0] + p2 * y[2];
    const Vector odd_p = y[1] + p2 * y[3];
    const Vector even_q = y[0] + q2 * y[2];
    const Vector odd_q = y[1] + q2 * y[3];
    v[0] = even_p + p * odd_p;
    v[1] = even_p - p * odd_p;
    v[2] = even_q + q * odd_q;
    v[3] = even_q - q * odd_q;
    v[4] = y[3];
    RINGGRAD_UNROLL
    for (int i = 0; i < 4; ++i) v[5 + i] = y[i];
  }
};
// w -> factors
struct FilterStride2 {
  static constexpr int kIn = 3;
  static constexpr int kOut = 6;
  static constexpr int group(int i) { return i / 2; }
  [[gnu::always_inline]] static void apply(const Vector* w, Vector* u) {
    const float p = kScaleP;
    const float q = kScaleQ;
    const float pp = kScaleP * kP;
    const float qq = kScaleQ * kQ;
    u[0] = p * w[0] + pp * w[2];
    u[1] = pp * w[2] - p * w[0];
    u[2] = q * w[0] + qq * w[2];
    u[3] = qq * w[2] - q * w[0];
    u[4] = w[2];
    u[5] = w[1];
  }
};
// factors -> dw, the adjoint of FilterStride2
struct FilterAdjointStride2 {
  static constexpr int kIn = 6;
  static constexpr int kOut = 3;
  static constexpr int group(int i) { return i % 2; }
  [[gnu::always_inline]] static void apply(const Vector* u, Vector* w) {
    const float p = kScaleP;
    const float q = kScaleQ;
    const float pp = kScaleP * kP;
    const float qq = kScaleQ * kQ;
    w[0] = p * (u[0] - u[1]) + q * (u[2] - u[3]);
    w[1] = u[5];
    w[2] = pp * (u[0] + u[1]) + (qq * (u[2] + u[3]) + u[4]);
  }
};

struct Stride2 {
  static constexpr int kEdge = 9;
  static constexpr int kOutputStep = 4;
  static constexpr int kInputStep = 8;
  using Input = InputStride2<2>;
  using Output = OutputStride2;
  using OutputAdjoint = OutputAdjointStride2;
  using Filter = FilterStride2;
  using FilterAdjoint = FilterAdjointStride2;
  static constexpr int first_output(int product) {
    return product < 4 ? 0 : product == 4 ? 3 : product - 5;
  }
};

// The data gradient: dx at even columns is w1 dy. At odd columns it is an F(4,2) of dy with the
// outer taps, which are already turned (see Direction).
struct OutputStride2Backward {  // products -> dx, columns 2p … 2p + 7
  static constexpr int kIn = 9;
  static constexpr int kOut = 8;
  static constexpr int group(int i) { return i % 4; }
  [[gnu::always_inline]] static void apply(const Vector* v, Vector* x) {
    Vector odd[4];
    moments_of_five(v, odd);
    RINGGRAD_UNROLL
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = v[5 + i];
      x[2 * i + 1] = odd[i];
    }
  }
};
struct Stride2Backward {
  static constexpr int kEdge = 9;
  static constexpr int kOutputStep = 8;
  static constexpr int kInputStep = 4;
  using Input = InputStride2<1>;
  using Output = OutputStride2Backward;
  using Filter = FilterStride2;
  static constexpr int first_output(int product) {
    return product < 4 ? 1 : product == 4 ? 7 : 2 * (product - 5);
  }
};

}  // namespace ringgrad::conv
