#include "ringgrad/autograd/autocast.h"

#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {

AutocastGuard::AutocastGuard(std::optional<DType> dtype) : previous_(current_) {
  CHECK_AS(DTypeError, !dtype || *dtype == DType::BFloat16 || *dtype == DType::Float16,
           "AutocastGuard: dtype ", *dtype, ", expected bfloat16 or float16");
  current_ = dtype;
}

Tensor autocast(const Tensor& x) {
  const bool wide = x.defined() && x.dtype() == DType::Float32;
  return AutocastGuard::current_ && wide ? to(x, *AutocastGuard::current_) : x;
}
BEFORE_MAIN(autocast, product_input = autocast);

Tensor autocast_loss(const Tensor& x) {
  const bool narrow = x.defined() && (x.dtype() == DType::BFloat16 || x.dtype() == DType::Float16);
  return AutocastGuard::current_ && narrow ? to(x, DType::Float32) : x;
}

}  // namespace ringgrad
