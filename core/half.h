// The two 16-bit floating types as storage: kernels load them as float, compute in float and store back.
// Bit layouts equal CUDA's __half and __nv_bfloat16. Conversions round to nearest, ties to even; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace ringgrad {

// IEEE 754 binary16: 5 exponent bits, 10 of mantissa. Largest finite value 65504.
struct float16 {
  uint16_t bits;
  float16() = default;
  float16(float value) : bits(from_float(value)) {}
  operator float() const { return to_float(bits); }

  static uint16_t from_float(float value);
  static float to_float(uint16_t bits);
};

// The upper half of a float32: 8 exponent bits, 7 of mantissa.
struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  bfloat16(float value) : bits(from_float(value)) {}
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

  static uint16_t from_float(float value) {
    const uint32_t x = std::bit_cast<uint32_t>(value);
    if ((x & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((x >> 16) | 0x40u);  // quiet the NaN
    return static_cast<uint16_t>((x + 0x7fffu + ((x >> 16) & 1u)) >> 16);
  }
};

#ifdef __F16C__
inline uint16_t float16::from_float(float value) {
  return static_cast<uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
}
inline float float16::to_float(uint16_t bits) { return _cvtsh_ss(bits); }
#else
inline uint16_t float16::from_float(float value) {
  const uint32_t x = std::bit_cast<uint32_t>(value), sign = (x >> 16) & 0x8000u, magnitude = x & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude >= 0x38800000u)                                                // a normal number
    return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
  // Subnormal: adding 0.5 lets the float adder shift and round the mantissa into place.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
}
inline float float16::to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;  // subnormal or zero
  return sign ? -value : value;
}
#endif

}  // namespace ringgrad
