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
  CHECK_AS(ShapeError, x.dim() >= 3, "instance_norm: the input has shape ", x.shape(),
           ", expected [N, C, …] with something to normalise over");
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

// Returns x at `places` along d. Between whole positions it interpolates linearly.
static Tensor at_places(const Tensor& x, int d, const std::vector<double>& places) {
  const int64_t n = x.size(d);
  const int64_t last = n - 1;
  std::vector<int64_t> lower;
  std::vector<int64_t> upper;
  std::vector<double> fraction;
  for (double place : places) {
    lower.push_back(std::clamp<int64_t>(static_cast<int64_t>(std::floor(place)), 0, last));
    upper.push_back(std::min(lower.back() + 1, last));
    fraction.push_back(std::clamp(place - static_cast<double>(lower.back()), 0.0, 1.0));
    if (fraction.back() > 0) continue;
    // Both neighbours are the same pixel with weight 1/2. A weight of 0 could give NaN with an
    // infinite neighbour or gradient.
    upper.back() = lower.back();
    fraction.back() = 0.5;
  }
  const Tensor below = index_select(x, d, tensor(lower, x.device()));
  if (upper == lower) return below;
  const Tensor above = index_select(x, d, tensor(upper, x.device()));
  Shape along = {static_cast<int64_t>(places.size())};
  while (along.dim() < x.dim() - d) along.push_back(1);
  const auto weight = [&](const Tensor& of) { return to(to(of, x.dtype()), x.device()); };
  const Tensor nearness = tensor(fraction, along);
  // This form does not subtract one value from the other, because the difference may overflow.
  return add(mul(below, weight(sub(full_like(nearness, 1), nearness))),
             mul(above, weight(nearness)));
}

Tensor upsample(const Tensor& input, Pair output_size, const UpsampleOptions& options) {
  check_floating("upsample", input);
  check_dim("upsample", "the input", input, 4);
  // 16-bit numbers are rounded once, forward and backward.
  const Tensor x = to(input, accumulator_dtype(input.dtype()));
  CHECK_AS(ShapeError, output_size.h >= 1 && output_size.w >= 1 && x.size(2) >= 1 && x.size(3) >= 1,
           "upsample: from ", x.shape(), " to ", output_size.h, " x ", output_size.w,
           ", expected at least one pixel");
  const auto places = [&](int64_t from, int64_t to) {
    std::vector<double> all;
    for (int64_t i = 0; i < to; ++i) {
      const double in = static_cast<double>(from);
      const double out = static_cast<double>(to);
      const double at = static_cast<double>(i);
      if (options.mode == UpsampleMode::Nearest)
        all.push_back(static_cast<double>(i * from / to));
      else if (options.align_corners)
        all.push_back(to == 1 ? 0 : at * (in - 1) / (out - 1));
      else
        all.push_back((at + 0.5) * in / out - 0.5);
    }
    return all;
  };
  // Columns are gathered as rows. Including the transposing copies this is faster than gathering
  // single numbers.
  const Tensor wide =
      at_places(contiguous(permute(x, {3, 0, 1, 2})), 0, places(x.size(3), output_size.w));
  const Tensor y =
      at_places(contiguous(permute(wide, {1, 2, 3, 0})), 2, places(x.size(2), output_size.h));
  return to(y, input.dtype());
}

}  // namespace ringgrad
