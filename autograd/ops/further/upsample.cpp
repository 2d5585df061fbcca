#include <algorithm>
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/autograd/ops/further/image_memory.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels/interpolation_kernels.h"

namespace ringgrad {
namespace {

struct Place {
  int64_t from;
  double weight;
};
// By output: the inputs of which it is the sum.
using Places = std::vector<std::vector<Place>>;

AxisWeights weights_of(const Places& all, DType dtype, Device device) {
  std::vector<int64_t> begin = {0};
  std::vector<int64_t> index;
  std::vector<double> weight;
  for (const std::vector<Place>& places : all) {
    for (const Place& place : places) {
      index.push_back(place.from);
      weight.push_back(place.weight);
    }
    begin.push_back(static_cast<int64_t>(index.size()));
  }
  return {tensor(begin, device), tensor(index, device),
          on_device(in_dtype(tensor(weight), dtype), device)};
}

// Returns, for each of n inputs, the outputs that it is part of.
Places turned(const Places& all, int64_t n) {
  Places result(n);
  for (size_t to = 0; to < all.size(); ++to)
    for (const Place& place : all[to])
      result[place.from].push_back({static_cast<int64_t>(to), place.weight});
  return result;
}

// Returns x [O, H, W, I], contiguous, interpolated along H and W.
Tensor interpolated(const Tensor& x, const Places& rows, const Places& columns) {
  const Tensor y = empty({x.size(0), static_cast<int64_t>(rows.size()),
                          static_cast<int64_t>(columns.size()), x.size(3)},
                         x.options());
  if (y.numel() > 0)
    kernels::interpolate(y, x, weights_of(rows, x.dtype(), x.device()),
                         weights_of(columns, x.dtype(), x.device()));
  return y;
}

Tensor interpolate(const Tensor& x, const Places& rows, const Places& columns) {
  return differentiable(
      "interpolate", {x}, interpolated(x, rows, columns),
      [=, h = x.size(1), w = x.size(2)](const Tensor& dy) -> Gradients {
        return {interpolate(strided_contiguous(dy), turned(rows, h), turned(columns, w))};
      });
}

Places places_along(int64_t from, int64_t to, const UpsampleOptions& options) {
  const int64_t last = from - 1;
  const auto in = static_cast<double>(from);
  const auto out = static_cast<double>(to);
  Places all;
  all.reserve(to);  // throws at once if so many do not fit into memory
  for (int64_t i = 0; i < to; ++i) {
    if (options.mode == UpsampleMode::Nearest) {
      all.push_back({{i * from / to, 1}});
      continue;
    }
    const auto at = static_cast<double>(i);
    const double corners = to == 1 ? 0 : at * (in - 1) / (out - 1);
    const double place = options.align_corners ? corners : (at + 0.5) * in / out - 0.5;
    const auto lower = std::clamp<int64_t>(static_cast<int64_t>(std::floor(place)), 0, last);
    const double fraction = std::clamp(place - static_cast<double>(lower), 0.0, 1.0);
    // A weight of 0 is left out: 0 times a neighbour, or times an infinite gradient, may be NaN.
    if (fraction == 0 || lower == last)
      all.push_back({{lower, 1}});
    else
      all.push_back({{lower, 1 - fraction}, {lower + 1, fraction}});
  }
  return all;
}

}  // namespace

Tensor upsample(const Tensor& input, Pair output_size, const UpsampleOptions& options) {
  check_floating("upsample", input);
  check_dim("upsample", "the input", input, 4);
  // 16-bit numbers are rounded once, forward and backward.
  const Tensor x = to(input, accumulator_dtype(input.dtype()));
  const Shape& from = x.shape();
  const auto [height, width] = output_size;
  CHECK_AS(ShapeError,
           std::min({height, width, from[2], from[3]}) >= 1 && std::max(height, width) <= INT32_MAX,
           "upsample: from ", from, " to ", height, " x ", width,
           ", expected at least one pixel, and at most ", INT32_MAX, " in a row");
  const Places rows = places_along(from[2], height, options);
  const Places columns = places_along(from[3], width, options);
  if (x.layout() == Layout::ChannelsLast)
    return to(permute(interpolate(permute(x, {0, 2, 3, 1}), rows, columns), {0, 3, 1, 2}),
              input.dtype());
  const bool blocked = x.is_channel_blocked();
  const Tensor memory = blocked ? memory_in(x) : strided_contiguous(x);
  const Tensor pixels = reshape(
      memory, {memory.size(0) * memory.size(1), from[2], from[3], blocked ? kChannelBlock : 1});
  const Tensor made = interpolate(pixels, rows, columns);
  const Shape shape = {from[0], from[1], height, width};
  return to(blocked ? images_in(made, shape) : reshape(made, shape), input.dtype());
}

}  // namespace ringgrad
