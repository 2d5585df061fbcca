// Conversions and comparisons of numbers that kernels and operations outside the book need.
#include <cmath>

#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/classifier_kernels.h"
#include "ringgrad/core/kernels/numbers.h"

namespace ringgrad {

bool Scalar::is_less(Scalar other) const {
  if (is_integer() && other.is_integer()) return to<int64_t>() < other.to<int64_t>();
  // A long double of x86 has 64 bits of mantissa, which hold every int64 and every double.
  static_assert(__LDBL_MANT_DIG__ >= 64);
  const auto wide = [](Scalar c) {
    return c.is_integer() ? static_cast<long double>(c.to<int64_t>()) : c.to<double>();
  };
  return wide(*this) < wide(other);
}

bool is_whole(Scalar number) {
  return number.is_integer() || number.to<double>() == std::trunc(number.to<double>());
}

bool holds_exactly(DType dtype, Scalar number) {
  const auto value = number.to<double>();
  if (dtype == DType::Bool) return value == 0 || value == 1;
  return is_floating(dtype) ||
         (holds(dtype, number) && is_whole(number) && (dtype != DType::UInt8 || value >= 0));
}

Tensor in_dtype(const Tensor& x, DType dtype) {
  if (!x.defined() || x.dtype() == dtype) return x;
  Tensor y = empty(x.shape(), {dtype, x.device()});
  kernels::copy(y, x);
  return y;
}

}  // namespace ringgrad
