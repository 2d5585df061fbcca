#include "ringgrad/core/dtype.h"

#include <iterator>
#include <ostream>

#include "ringgrad/core/error.h"

namespace ringgrad {
namespace {

struct Properties {
  const char* name;
  size_t itemsize;
};
constexpr Properties kProperties[] = {  // in the order of DType
    {"float32", 4}, {"float64", 8}, {"bfloat16", 2}, {"float16", 2},
    {"int64", 8},   {"int32", 4},   {"uint8", 1},    {"bool", 1}};
static_assert(std::size(kProperties) == static_cast<size_t>(DType::Bool) + 1);

}  // namespace

size_t itemsize(DType dtype) { return kProperties[static_cast<int>(dtype)].itemsize; }

DType accumulator_dtype(DType dtype) {
  return dtype == DType::Float64 ? DType::Float64 : DType::Float32;
}

const char* name(DType dtype) { return kProperties[static_cast<int>(dtype)].name; }

bool is_floating(DType dtype) { return dtype <= DType::Float16; }

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

void throw_unsupported_dtype(const char* operation, DType dtype, const char* expected) {
  throw DTypeError(str(operation, ": unsupported dtype ", dtype, ", expected ", expected));
}

}  // namespace ringgrad
