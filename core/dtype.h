// Element types: float16 and bfloat16 as storage types, the names of all dtypes, and the visitors
// that turn a DType at run time into a C++ type at compile time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <type_traits>
#include <utility>

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace ringgrad {

// ---- float16 and bfloat16 -----------------------------------------------------------------------
// Kernels load these types as float, compute in float and store the result back. Their bit layouts
// equal CUDA's __half and __nv_bfloat16. Conversions round to nearest, ties to even; NaN stays NaN.

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
    // Makes the NaN quiet. Otherwise dropping its lower bits could turn it into infinity.
    if ((x & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((x >> 16) | 0x40u);
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
  const uint32_t x = std::bit_cast<uint32_t>(value), sign = (x >> 16) & 0x8000u,
                 magnitude = x & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude >= 0x38800000u)                                                // a normal number
    return static_cast<uint16_t>(
        sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
  // Subnormal: adding 0.5 lets the float adder shift and round the mantissa into place.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
}
inline float float16::to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u)
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;  // subnormal or zero
  return sign ? -value : value;
}
#endif

// ---- all element types --------------------------------------------------------------------------

enum class DType : uint8_t { Float32, Float64, BFloat16, Float16, Int64, Int32, UInt8, Bool };

size_t itemsize(DType dtype);   // bytes of one element
const char* name(DType dtype);  // "float32"
bool is_floating(DType dtype);  // float32, float64, bfloat16, float16
// Returns the dtype in which 16-bit floats are summed and per-channel values are kept. It is
// float64 for float64 and float32 for all others.
DType accumulator_dtype(DType dtype);
std::ostream& operator<<(std::ostream& out, DType dtype);
[[noreturn]] void throw_unsupported_dtype(const char* operation, DType dtype, const char* expected);

// dtype_of<float> == DType::Float32
template <class T>
inline constexpr DType dtype_of = [] {
  if constexpr (std::is_same_v<T, float>)
    return DType::Float32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::Float64;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return DType::BFloat16;
  else if constexpr (std::is_same_v<T, float16>)
    return DType::Float16;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::Int64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::Int32;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return DType::UInt8;
  else {
    static_assert(std::is_same_v<T, bool>, "no DType for this C++ type");
    return DType::Bool;
  }
}();

template <class T>
inline constexpr bool kIs16Bit = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

// Accumulator<T> is the type in which values of T are computed and summed. 16-bit floats use float,
// and bool uses int64.
template <class T>
using Accumulator =
    std::conditional_t<kIs16Bit<T>, float, std::conditional_t<std::is_same_v<T, bool>, int64_t, T>>;

// Calls body.operator()<T>() with the C++ type of a floating `dtype`. Throws DTypeError in the name
// of `operation` for any other dtype.
//   visit_floating("softmax", x.dtype(), [&]<class T>() { ... });
template <class Body>
decltype(auto) visit_floating(const char* operation, DType dtype, Body&& body) {
  switch (dtype) {
    case DType::Float32: return body.template operator()<float>();
    case DType::Float64: return body.template operator()<double>();
    case DType::BFloat16: return body.template operator()<bfloat16>();
    case DType::Float16: return body.template operator()<float16>();
    default: throw_unsupported_dtype(operation, dtype, "a floating dtype");
  }
}

template <class Body>
decltype(auto) visit_dtype(const char* operation, DType dtype, Body&& body) {
  switch (dtype) {
    case DType::Int64: return body.template operator()<int64_t>();
    case DType::Int32: return body.template operator()<int32_t>();
    case DType::UInt8: return body.template operator()<uint8_t>();
    case DType::Bool: return body.template operator()<bool>();
    default: return visit_floating(operation, dtype, std::forward<Body>(body));
  }
}

}  // namespace ringgrad
