#include "ringgrad/core/random_tensors.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/numbers.h"
#include "ringgrad/core/random.h"

namespace ringgrad {

// Returns true if the dtype holds every integer from `low` to `last` exactly.
static bool holds_all(DType dtype, int64_t low, int64_t last) {
  if (!is_floating(dtype)) return holds_exactly(dtype, low) && holds_exactly(dtype, last);
  const int digits = dtype == DType::Float64   ? 53
                     : dtype == DType::Float32 ? 24
                     : dtype == DType::Float16 ? 11
                                               : 8;
  return low >= -(int64_t{1} << digits) && last <= int64_t{1} << digits;
}

Tensor rand(const Shape& shape, TensorOptions options) {
  Tensor x = empty(shape, options);
  uniform_(x, 0, 1);
  return x;
}

Tensor randn(const Shape& shape, TensorOptions options) {
  Tensor x = empty(shape, options);
  normal_(x, 0, 1);
  return x;
}

Tensor rand_like(const Tensor& x) { return rand(x.shape(), x.options()); }

Tensor randn_like(const Tensor& x) { return randn(x.shape(), x.options()); }

Tensor randint(Int64 low, Int64 high, const Shape& shape, TensorOptions options) {
  CHECK(low < high, "randint: the bounds are ", low, " and ", high,
        ", expected the second above the first, which it ", "excludes");
  CHECK_AS(DTypeError, holds_all(options.dtype, low, high - 1), "randint: dtype ", options.dtype,
           " cannot hold all numbers from ", low, " to ", high - 1);
  const Tensor whole = empty(shape, {DType::Int64, options.device});
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  kernels::randint(whole, default_generator(options.device).draw(2 * whole.numel()), low, range);
  return options.dtype == DType::Int64 && options.layout == Layout::Strided
             ? whole
             : copy_of(whole, options);
}

}  // namespace ringgrad
