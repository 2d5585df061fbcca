// A number that is used beside a tensor, as in ids == 3 or x * 0.5. It stays an integer or a double
// until the operation knows the dtype to convert it to, because a double does not hold all integers
// beyond 2^53.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>

#include "ringgrad/core/base/number.h"
#include "ringgrad/core/base/only.h"
#include "ringgrad/core/dtype.h"

namespace ringgrad {

class Scalar {
 public:
  // A bool becomes 0 or 1. An unsigned integer above INT64_MAX fits no dtype and becomes the
  // nearest double.
  template <class T>
  requires(kIsNumber<T> || kIs16Bit<T> || std::is_same_v<T, bool>) constexpr Scalar(T value) {
    if constexpr (std::is_integral_v<T>)
      is_integer_ =
          std::is_signed_v<T> || static_cast<uint64_t>(value) <= static_cast<uint64_t>(INT64_MAX);
    if (is_integer_)
      integer_ = static_cast<int64_t>(value);
    else
      real_ = static_cast<double>(value);
  }

  template <class T>
  constexpr Scalar(Only<T> value) : Scalar(static_cast<T>(value)) {}

  constexpr bool is_integer() const { return is_integer_; }

  // Converts the number to T, which may round it or drop its fraction. number() defines the result
  // beyond T's range.
  template <class T>
  T to() const {
    return is_integer_ ? number<T>(integer_) : number<T>(real_);
  }

  // Exact for all kinds; false if either is NaN.
  friend bool operator<(Scalar a, Scalar b) { return a.is_less(b); }
  friend std::ostream& operator<<(std::ostream& out, Scalar number);

 private:
  bool is_less(Scalar other) const;
  bool is_integer_ = false;
  union {
    int64_t integer_;
    double real_;
  };
};

// Returns true if the number can become an element: rounded, or without its fraction. Bool takes
// any number. Floating dtypes take infinities, NaN and what is not beyond their largest number, as
// in PyTorch. Integer dtypes take the numbers in their range. uint8 also takes -255 to -1, which
// wrap.
bool holds(DType dtype, Scalar number);
// Throws DTypeError in the name of `operation` unless the dtype holds the number.
void check_holds(const char* operation, DType dtype, Scalar number);

}  // namespace ringgrad
