#include "ringgrad/core/cpu/conv/geometry.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad::conv {

Conv2dGeometry conv2d_geometry(int64_t n, int64_t c, int64_t h, int64_t w, int64_t k, int64_t r, int64_t s,
                               int64_t stride, int64_t padding) {
  CHECK_AS(ShapeError, n >= 0 && c > 0 && h > 0 && w > 0, "conv2d: the input is [", n, ", ", c, ", ", h, ", ", w,
           "], expected positive sizes");
  CHECK_AS(ShapeError, k > 0 && r > 0 && s > 0, "conv2d: the filters are [", k, ", ", c, ", ", r, ", ", s,
           "], expected positive sizes");
  CHECK_AS(ShapeError, stride > 0 && padding >= 0, "conv2d: stride is ", stride, " and padding ", padding,
           ", expected a positive stride and no negative padding");
  CHECK_AS(ShapeError, h + 2 * padding >= r && w + 2 * padding >= s, "conv2d: a filter of ", r, " x ", s,
           " does not fit into an image of ", h, " x ", w, " with padding ", padding);
  return {n, c, h, w, k, r, s, stride, padding, (h + 2 * padding - r) / stride + 1, (w + 2 * padding - s) / stride + 1};
}

}  // namespace ringgrad::conv
