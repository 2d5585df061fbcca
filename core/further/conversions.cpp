// Conversions, and questions about them, that kernels and operations outside the book ask for.
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/classifier_kernels.h"

namespace ringgrad {

bool holds_exactly(DType dtype, Scalar number) {
  const auto value = number.to<double>();
  if (dtype == DType::Bool) return value == 0 || value == 1;
  return holds(dtype, number) && (is_floating(dtype) || number.is_whole()) &&
         (dtype != DType::UInt8 || value >= 0);
}

Tensor in_dtype(const Tensor& x, DType dtype) {
  if (!x.defined() || x.dtype() == dtype) return x;
  Tensor y = empty(x.shape(), {dtype, x.device()});
  kernels::copy(y, x);
  return y;
}

}  // namespace ringgrad
