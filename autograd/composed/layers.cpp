// Layers composed of other operations. They have no kernel of their own, and their gradients follow
// from those operations.
#include <algorithm>
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {

// Returns ones with the sizes of the first `dims` dimensions, to be broadcast over the others.
static Tensor factors_like(const Tensor& x, int dims) {
  Shape shape = x.shape();
  for (int d = dims; d < x.dim(); ++d) shape[d] = 1;
  return ones(shape, {x.dtype(), x.device()});
}

// Multiplies each channel by the dropout() of 1: 0 or 1 / (1 - p).
Tensor dropout2d(const Tensor& x, Real p, Flag training) {
  check_floating("dropout2d", x);
  CHECK_AS(ShapeError, x.dim() >= 2, "dropout2d: the input has shape ", x.shape(),
           ", expected [N, C, …]");
  const Tensor factors = dropout(factors_like(x, 2), p, training);
  return training ? mul(x, factors) : x;
}

Tensor drop_path(const Tensor& x, Real p, Flag training) {
  check_floating("drop_path", x);
  CHECK_AS(ShapeError, x.dim() >= 1, "drop_path: the input has shape [], expected [N, …]");
  return training && p > 0 ? mul(x, dropout(factors_like(x, 1), p)) : x;
}

// A dropped element becomes the limit of selu() towards -∞. Then all elements are shifted and
// scaled so that mean and variance stay.
Tensor alpha_dropout(const Tensor& x, Real p, Flag training) {
  check_floating("alpha_dropout", x);
  CHECK(p >= 0 && p < 1, "alpha_dropout: the probability is ", p, ", expected a number in [0, 1)");
  if (!training || p == 0) return x;
  constexpr double kLimit = -1.7580993408473766;
  const double scale = 1 / std::sqrt((1 - p) * (1 + p * kLimit * kLimit));
  const Tensor kept = ne(dropout(factors_like(x, x.dim()), p), 0);
  return add(mul(where(kept, x, kLimit), scale), -scale * p * kLimit);
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, Real eps) {
  check_floating("instance_norm", x);
  CHECK_AS(ShapeError, x.dim() >= 3 && (x.numel() == 0 || x.numel() > x.size(0) * x.size(1)),
           "instance_norm: the input has shape ", x.shape(),
           ", expected [N, C, …] with more than one number to normalise over");
  return group_norm(x, x.size(1), weight, bias, eps);
}

// conv2d() on images of height 1.
Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& b, const Conv1dOptions& options) {
  check_defined("conv1d", x);
  if (x.dim() == 2) return squeeze(conv1d(unsqueeze(x, 0), w, b, options), 0);
  check_dim("conv1d", "the input", x, 3);
  check_dim("conv1d", "the weight", w, 3);
  const Conv2dOptions image = {.stride = {1, options.stride},
                               .padding = {0, options.padding},
                               .dilation = {1, options.dilation},
                               .groups = options.groups};
  return squeeze(conv2d(unsqueeze(x, 2), unsqueeze(w, 2), b, image), 2);
}

}  // namespace ringgrad
