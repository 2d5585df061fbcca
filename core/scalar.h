// A number beside a tensor, as in ids == 3 or x * 0.5. It stays the integer or the double that it is until an operation
// knows the dtype that it becomes, because a double holds no integers beyond 2^53.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <iosfwd>

#include "ringgrad/core/base/number.h"
#include "ringgrad/core/base/only.h"
#include "ringgrad/core/dtype.h"

namespace ringgrad {

class Scalar {
 public:
  // A bool is 0 or 1. An unsigned integer above INT64_MAX, which no dtype holds, is the nearest double.
  template <class T>
  requires(kIsNumber<T> || kIs16Bit<T> || std::is_same_v<T, bool>) constexpr Scalar(T value) {
    if constexpr (std::is_integral_v<T>)
      is_integer_ = std::is_signed_v<T> || static_cast<uint64_t>(value) <= static_cast<uint64_t>(INT64_MAX);
    if (is_integer_)
      integer_ = static_cast<int64_t>(value);
    else
      real_ = static_cast<double>(value);
  }

  template <class T>
  constexpr Scalar(Only<T> value) : Scalar(static_cast<T>(value)) {}

  constexpr bool is_integer() const { return is_integer_; }
  bool is_whole() const { return is_integer_ || real_ == std::trunc(real_); }

  // As a number of type T: rounded, or without its fraction; beyond T's range as number() has it.
  template <class T>
  T to() const {
    return is_integer_ ? number<T>(integer_) : number<T>(real_);
  }

  friend bool operator<(Scalar a, Scalar b);  // exact, whatever the kinds; false beside NaN
  friend std::ostream& operator<<(std::ostream& out, Scalar number);

 private:
  bool is_integer_ = false;
  union {
    int64_t integer_;
    double real_;
  };
};

// True when the number, without its fraction, can become an element: floating dtypes take any, as does bool; integers
// take those of their range, and uint8 those from -255 on, of which a negative one wraps.
bool holds(DType dtype, Scalar number);
// True when it becomes an element without wrapping: for comparisons, in which a number that has wrapped is another one.
bool holds_exactly(DType dtype, Scalar number);

}  // namespace ringgrad
