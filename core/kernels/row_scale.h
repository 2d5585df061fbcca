// The power of two by which a row is multiplied before its deviations from the mean are squared. It
// is 1 unless the variance is so far from 1 that the squares would leave the range of A. Layer norm
// uses it on all devices: forward knows the variance, and backward has 1 / sqrt(variance + eps).
#pragma once

#include <cmath>

#include "ringgrad/core/base/number.h"

namespace ringgrad {

template <class A>
struct RowScale {
  // A variance above this, or below its inverse, needs scaling.
  static constexpr A kHuge = sizeof(A) == 4 ? A(0x1p100) : A(0x1p900);
  static constexpr A kShrink = sizeof(A) == 4 ? A(0x1p-80) : A(0x1p-600);
  static constexpr A kGrow = sizeof(A) == 4 ? A(0x1p90) : A(0x1p650);

  // `variance` includes eps. If it is NaN, the result does not matter.
  static RINGGRAD_HOST_DEVICE A for_variance(A variance) {
    return variance < 1 / kHuge ? kGrow : variance < kHuge ? A(1) : kShrink;
  }
  // Returns 1 / sqrt(variance + eps) of the unscaled row, given the variance of the scaled row. A
  // row of equal numbers may be scaled down because its sum overflows. Then eps times the square of
  // the scale would be 0, so the variance is scaled back first.
  static RINGGRAD_HOST_DEVICE A rstd(A variance, A eps, A scale) {
    const A own = variance / scale / scale + eps;
    return scale < 1 && std::isfinite(own) ? 1 / std::sqrt(own)
                                           : scale / std::sqrt(variance + eps * scale * scale);
  }
  static RINGGRAD_HOST_DEVICE A for_rstd(A rstd) { return for_variance(1 / rstd / rstd); }
};

}  // namespace ringgrad
