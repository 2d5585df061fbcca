#include "ringgrad/core/scalar.h"

#include <cmath>
#include <ostream>

#include "ringgrad/core/base/check.h"

namespace ringgrad {

void throw_out_of_range(const std::string& number, size_t bytes) {
  throw IndexError(str(current_op(), ": the argument ", number, " does not fit into the ",
                       8 * bytes, " bits of its parameter"));
}

bool holds(DType dtype, Scalar number) {
  if (dtype == DType::Bool || dtype == DType::Float64) return true;
  if (number.is_integer() && dtype == DType::Int64) return true;
  // Rounding leaves each number on its side of these limits.
  const auto value = number.to<double>();
  if (is_floating(dtype)) {
    const double most = dtype == DType::Float16    ? 65504
                        : dtype == DType::BFloat16 ? 0x1.fep127
                                                   : 0x1.fffffep127;
    return !std::isfinite(value) || std::abs(value) <= most;
  }
  const double limit = dtype == DType::UInt8 ? 0x1p8 : dtype == DType::Int32 ? 0x1p31 : 0x1p63;
  return value < limit && (dtype == DType::UInt8 ? value > -limit : value >= -limit);  // NaN is not
}

void check_holds(const char* operation, DType dtype, Scalar number) {
  CHECK_AS(DTypeError, holds(dtype, number), operation, ": the tensor is ", dtype,
           ", which cannot hold the number ", number,
           "; take a wider one, or infinity if it is floating");
}

std::ostream& operator<<(std::ostream& out, Scalar number) {
  return number.is_integer() ? out << number.to<int64_t>() : out << number.to<double>();
}

}  // namespace ringgrad
