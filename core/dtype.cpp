#include "ringgrad/core/dtype.h"

#include <ostream>

#include "ringgrad/core/error.h"

namespace ringgrad {

size_t itemsize(DType dtype) {
  switch (dtype) {
    case DType::Float64:
    case DType::Int64: return 8;
    case DType::Float32:
    case DType::Int32: return 4;
    case DType::BFloat16:
    case DType::Float16: return 2;
    case DType::UInt8:
    case DType::Bool: return 1;
  }
  return 0;
}

DType accumulator_dtype(DType dtype) { return dtype == DType::Float64 ? DType::Float64 : DType::Float32; }

const char* name(DType dtype) {
  switch (dtype) {
    case DType::Float32: return "float32";
    case DType::Float64: return "float64";
    case DType::BFloat16: return "bfloat16";
    case DType::Float16: return "float16";
    case DType::Int64: return "int64";
    case DType::Int32: return "int32";
    case DType::UInt8: return "uint8";
    case DType::Bool: return "bool";
  }
  return "?";
}

bool is_floating(DType dtype) { return dtype <= DType::Float16; }

bool holds(DType dtype, double number) {
  if (is_floating(dtype) || dtype == DType::Bool) return true;
  const double limit = dtype == DType::UInt8 ? 0x1p8 : dtype == DType::Int32 ? 0x1p31 : 0x1p63;
  return number >= -limit && number < limit;  // NaN is not
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

void throw_unsupported_dtype(const char* operation, DType dtype, const char* expected) {
  throw DTypeError(str(operation, ": unsupported dtype ", dtype, ", expected ", expected));
}

}  // namespace ringgrad
