// e^x, tanh x and the normal distribution in a form that the compiler turns into vector instructions: no branches, no
// tables, no calls. Private to core/cpu.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "ringgrad/core/kernels/elementwise_functions.h"

namespace ringgrad::cpu {

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2, and e^r by the polynomial of Cephes' expf (Moshier 1989).
// Within 1.1 units in the last place; overflows to infinity, underflows through the subnormals to 0, NaN stays NaN.
// 8 times as fast as std::exp with AVX-512.
inline float fast_exp(float x) {
  constexpr float kRounder = 0x1.8p23f;  // adding it rounds to an integer, which then stands in the low mantissa bits
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  x = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
  const float shifted = x * 1.44269504f + kRounder;
  const float n = shifted - kRounder;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^n in two factors, because n reaches from -150 to 128.
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRounder), half = exponent >> 1;
  const auto power = [](int32_t e) { return std::bit_cast<float>((e + 127) << 23); };
  return p * power(half) * power(exponent - half);
}
inline double fast_exp(double x) { return std::exp(x); }

// tanh |x| = m / (m + 2) with m = e^(2|x|) - 1 in double, of which a float has room for half the digits: rounded once,
// within 0.51 units in the last place, where the C library's is within 2.2. m = 2^n e^r - 1 as above; its digits are
// kept near 0, where e^r - 1 is the polynomial without its 1. 10 times as fast as std::tanh with AVX-512.
inline float fast_tanh(float x) {
  constexpr double kRounder = 0x1.8p52, kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;
  const double twice = 2 * std::abs(static_cast<double>(x)), t = twice > 20 ? 20 : twice;  // tanh 10 rounds to 1
  const double shifted = t * kLog2E + kRounder, n = shifted - kRounder, r = t - n * kLn2;
  double p = 1.0 / 40320;  // Taylor's, to r^8 / 8!: |r| <= ln 2 / 2
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 1.0 / 2;
  p = p * r * r + r;
  const int64_t exponent = std::bit_cast<int64_t>(shifted) - std::bit_cast<int64_t>(kRounder);
  const double power = std::bit_cast<double>((exponent + 1023) << 52);
  const double m = p * power + (power - 1);
  return std::copysign(static_cast<float>(m / (m + 2)), x);
}
inline double fast_tanh(double x) { return std::tanh(x); }

// Φ(-t) = e^(-t²/2) p(q) / (t + k) for t = |x|, q = (t - k) / (t + k): without its exponential, a function that changes
// little from 0 to infinity, which q brings to [-1, 1) (Shepherd & Laframboise 1981, for erfc). p is fitted to it for
// the least relative error, 8e-8, k = 3.5. 20 times as fast as std::erf and std::exp with AVX2.
inline Normal<float> fast_normal(float x) {
  constexpr float k = 3.5f;
  const float t = std::abs(x), near = t > 20 ? 20 : t;  // Φ(-20) is 0
  const float inverse = 1 / (near + k), q = (near - k) * inverse, power = fast_exp(-t * t / 2);
  float p = 1.10688612e-4f;
  p = p * q + 4.21896897e-4f;
  p = p * q - 4.94943059e-4f;
  p = p * q - 3.17531009e-3f;
  p = p * q + 6.49311580e-3f;
  p = p * q + 1.74063779e-2f;
  p = p * q - 1.16053037e-1f;
  p = p * q + 3.15425038e-1f;
  p = p * q - 5.65561771e-1f;
  p = p * q + 7.44416058e-1f;
  const float beyond = power * (p * inverse);
  return {x > 0 ? 1 - beyond : beyond, power * static_cast<float>(kInverseSqrtTwoPi)};
}
inline Normal<double> fast_normal(double x) { return StandardMath::normal(x); }

// What core/kernels/elementwise_functions.h asks for.
struct VectorMath {
  template <class A>
  static A exp(A x) {
    return fast_exp(x);
  }
  template <class A>
  static A tanh(A x) {
    return fast_tanh(x);
  }
  template <class A>
  static Normal<A> normal(A x) {
    return fast_normal(x);
  }
};

}  // namespace ringgrad::cpu
