#include "ringgrad/core/scalar.h"

#include <ostream>

#include "ringgrad/core/error.h"

namespace ringgrad {

void throw_out_of_range(const std::string& number, size_t bytes) {
  throw IndexError(str(current_op(), ": the argument ", number, " does not fit into the ",
                       8 * bytes, " bits of its parameter"));
}

bool holds(DType dtype, Scalar number) {
  if (is_floating(dtype) || dtype == DType::Bool) return true;
  if (number.is_integer() && dtype == DType::Int64) return true;
  const double limit = dtype == DType::UInt8 ? 0x1p8 : dtype == DType::Int32 ? 0x1p31 : 0x1p63;
  // Rounding leaves each number on its side of these limits.
  const double value = number.to<double>();
  return value < limit && (dtype == DType::UInt8 ? value > -limit : value >= -limit);  // NaN is not
}

void check_holds(const char* operation, DType dtype, Scalar number) {
  if (!holds(dtype, number))
    throw DTypeError(
        str(operation, ": the tensor is ", dtype, ", which cannot hold the number ", number));
}

std::ostream& operator<<(std::ostream& out, Scalar number) {
  return number.is_integer() ? out << number.to<int64_t>() : out << number.to<double>();
}

}  // namespace ringgrad
