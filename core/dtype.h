// Element types, and the one way to go from a DType at run time to a C++ type at compile time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <type_traits>
#include <utility>

#include "ringgrad/core/half.h"

namespace ringgrad {

enum class DType : uint8_t { Float32, Float64, BFloat16, Float16, Int64, Int32, UInt8, Bool };

size_t itemsize(DType dtype);   // bytes of one element
const char* name(DType dtype);  // "float32"
bool is_floating(DType dtype);  // float32, float64, bfloat16, float16
// The dtype in which 16-bit floats are summed and per-channel values are kept: float32, or float64 for float64.
DType accumulator_dtype(DType dtype);
// Whether a number, without its fraction, can become an element: floating dtypes take any, as does bool, integers those
// of their range; a negative one wraps in uint8.
bool holds(DType dtype, double number);
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

// The type in which values of T are computed and summed: 16-bit floats use float, bool uses int64.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>, float,
                                       std::conditional_t<std::is_same_v<T, bool>, int64_t, T>>;

// Calls body.operator()<T>() with the C++ type of `dtype`. Throws DTypeError in the name of `operation` for others.
//   visit_floating("softmax", x.dtype(), [&]<class T>() { ... });
template <class Body>
decltype(auto) visit_floating(const char* operation, DType dtype, Body&& body) {
  switch (dtype) {
    case DType::Float32:
      return body.template operator()<float>();
    case DType::Float64:
      return body.template operator()<double>();
    case DType::BFloat16:
      return body.template operator()<bfloat16>();
    case DType::Float16:
      return body.template operator()<float16>();
    default:
      throw_unsupported_dtype(operation, dtype, "a floating dtype");
  }
}

template <class Body>
decltype(auto) visit_dtype(const char* operation, DType dtype, Body&& body) {
  switch (dtype) {
    case DType::Int64:
      return body.template operator()<int64_t>();
    case DType::Int32:
      return body.template operator()<int32_t>();
    case DType::UInt8:
      return body.template operator()<uint8_t>();
    case DType::Bool:
      return body.template operator()<bool>();
    default:
      return visit_floating(operation, dtype, std::forward<Body>(body));
  }
}

}  // namespace ringgrad
