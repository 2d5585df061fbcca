// Padding that continues an image beyond its border, and windows. Both pick elements along a
// dimension.
#include <algorithm>
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/sequences.h"

namespace ringgrad {
namespace {

// Returns the index in 0 … n - 1 that appears at position i of the row continued without end.
int64_t place_inside(int64_t i, int64_t n, PadMode mode) {
  if (mode == PadMode::Replicate) return std::clamp<int64_t>(i, 0, n - 1);
  if (mode == PadMode::Circular) return (i % n + n) % n;
  return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

// Returns windows of x [..., n, ...] as [..., count, size, ...]: element j of window i is at i
// stride + j dilation.
Tensor windows(const Tensor& x, int d, int64_t size, int64_t stride, int64_t dilation) {
  const int64_t count = (x.size(d) - dilation * (size - 1) - 1) / stride + 1;
  const Tensor begins = reshape(mul(arange(count), stride), {count, 1});
  const Tensor places = reshape(add(begins, mul(arange(size), dilation)), {count * size});
  Shape shape = x.shape();
  shape[d] = count;
  shape.insert(d + 1, size);
  return reshape(index_select(x, d, on_device(places, x.device())), shape);
}

}  // namespace

Tensor pad(const Tensor& x, const std::vector<int64_t>& widths, PadMode mode, Scalar value) {
  if (mode == PadMode::Constant) return pad(x, widths, value);
  check_defined("pad", x);
  const int pairs = static_cast<int>(widths.size() / 2);
  CHECK_AS(ShapeError, widths.size() % 2 == 0 && pairs <= x.dim(), "pad: ", widths.size(),
           " widths for shape ", x.shape(),
           ", expected a pair (before, after) for each of at most ", x.dim(), " dimensions");
  Tensor y = x;
  for (int i = 0; i < pairs; ++i) {
    const int d = x.dim() - 1 - i;
    const int64_t n = x.size(d);
    const int64_t before = widths[2 * i];
    const int64_t after = widths[2 * i + 1];
    if (before == 0 && after == 0) continue;
    const int64_t most = mode == PadMode::Reflect    ? n - 1
                         : mode == PadMode::Circular ? n
                                                     : INT64_MAX / 2 - n;  // the sum must not wrap
    CHECK_AS(ShapeError,
             n > 0 && std::max(before, after) <= most && before > -n && after > -n &&
                 before + after > -n,
             "pad: dimension ", d, " of shape ", x.shape(), " with ", before,
             " elements before and ", after, " behind, expected at most ", most,
             ", and some that are left");
    // A tensor, because it says in our own words if so many do not fit into memory.
    const Tensor places = empty({before + n + after}, {.dtype = DType::Int64});
    auto* place = places.data<int64_t>();
    for (int64_t at = -before; at < n + after; ++at) *place++ = place_inside(at, n, mode);
    y = index_select(y, d, on_device(places, x.device()));
  }
  return y.is_same(x) ? clone(x) : y;
}

Tensor Tensor::unfold(Int dim, Int64 size, Int64 step) const {
  check_defined("unfold", *this);
  const int d = normalize_dim("unfold", dim, this->dim());
  CHECK_AS(ShapeError, size >= 1 && step >= 1 && size <= this->size(d), "unfold: windows of ", size,
           " in steps of ", step, " along dimension ", d, " of shape ", shape(),
           ", expected windows that fit, and steps of at least 1");
  const Tensor all = windows(*this, d, size, step, 1);
  std::vector<int> order;
  for (int i = 0; i < all.dim(); ++i)
    if (i != d + 1) order.push_back(i);
  order.push_back(d + 1);
  return ringgrad::permute(all, order);
}

Tensor unfold(const Tensor& x, const UnfoldOptions& o) {
  check_dim("unfold", "the input", x, 4);
  const auto fits = [](int64_t n, int64_t kernel, int64_t stride, int64_t padding,
                       int64_t dilation) {
    constexpr int64_t kMost = INT32_MAX;  // the product of two does not overflow
    return kernel >= 1 && kernel <= kMost && stride >= 1 && padding >= 0 && padding <= kMost &&
           dilation >= 1 && dilation <= kMost && n + 2 * padding > dilation * (kernel - 1);
  };
  CHECK_AS(ShapeError,
           fits(x.size(2), o.kernel.h, o.stride.h, o.padding.h, o.dilation.h) &&
               fits(x.size(3), o.kernel.w, o.stride.w, o.padding.w, o.dilation.w),
           "unfold: the kernel ", o.kernel, " with stride ", o.stride, ", padding ", o.padding,
           " and dilation ", o.dilation, " for the input ", x.shape(), ", expected one that fits");
  const Tensor padded = pad(x, {o.padding.w, o.padding.w, o.padding.h, o.padding.h});
  const Tensor rows = windows(padded, 2, o.kernel.h, o.stride.h, o.dilation.h);
  const Tensor all = windows(rows, 4, o.kernel.w, o.stride.w, o.dilation.w);  // [N, C, P, R, Q, S]
  return reshape(permute(all, {0, 1, 3, 5, 2, 4}),
                 {x.size(0), x.size(1) * o.kernel.h * o.kernel.w, all.size(2) * all.size(4)});
}

Tensor pixel_shuffle(const Tensor& x, Int64 r) {
  check_defined("pixel_shuffle", x);
  CHECK_AS(ShapeError, x.dim() >= 3 && r >= 1 && x.size(-3) % r == 0 && x.size(-3) / r % r == 0,
           "pixel_shuffle: the input has shape ", x.shape(), ", expected [..., C · ", r,
           "², H, W]");
  const int64_t channels = x.size(-3) / r / r;  // r² may not fit
  const int64_t height = x.size(-2);
  const int64_t width = x.size(-1);
  Shape shape(std::span(x.shape().begin(), static_cast<size_t>(x.dim() - 3)));
  const int64_t images = shape.numel();
  const auto times_r = [r](int64_t size) { return count_elements("pixel_shuffle", {size, r}); };
  for (const int64_t size : {channels, times_r(height), times_r(width)}) shape.push_back(size);
  return reshape(permute(reshape(x, {images, channels, r, r, height, width}), {0, 1, 4, 2, 5, 3}),
                 shape);
}

Tensor pixel_unshuffle(const Tensor& x, Int64 r) {
  check_defined("pixel_unshuffle", x);
  CHECK_AS(ShapeError, x.dim() >= 3 && r >= 1 && x.size(-2) % r == 0 && x.size(-1) % r == 0,
           "pixel_unshuffle: the input has shape ", x.shape(), ", expected [..., C, H · ", r,
           ", W · ", r, "]");
  const int64_t channels = x.size(-3);
  const int64_t height = x.size(-2) / r;
  const int64_t width = x.size(-1) / r;
  Shape shape(std::span(x.shape().begin(), static_cast<size_t>(x.dim() - 3)));
  const int64_t images = shape.numel();
  const int64_t all = count_elements("pixel_unshuffle", {channels, r, r});
  for (const int64_t size : {all, height, width}) shape.push_back(size);
  return reshape(permute(reshape(x, {images, channels, height, r, width, r}), {0, 1, 3, 5, 2, 4}),
                 shape);
}

namespace {

// Returns how many elements the last window of ceil_mode may extend beyond an input of n. That
// window begins inside the input or the leading padding.
int64_t lacking(int64_t n, int64_t kernel, int64_t stride, int64_t padding) {
  if (n + 2 * padding + stride <= kernel) return 0;  // none fits
  int64_t last = (n + 2 * padding - kernel + stride - 1) / stride * stride;
  if (last >= n + padding) last -= stride;
  return std::max<int64_t>(0, last + kernel - n - 2 * padding);
}

// Sums of these numbers must not overflow.
void check_sizes(const char* operation, Pair kernel, Pair stride, Pair padding) {
  const auto sizes = {kernel.h, kernel.w, stride.h, stride.w, padding.h, padding.w};
  CHECK(std::max(sizes) <= INT32_MAX && std::min(sizes) >= 0, operation, ": the kernel is ", kernel,
        ", the stride ", stride, ", the padding ", padding, ", expected 0 to ", INT32_MAX);
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Pair kernel, Pair stride, Pair padding, Pair dilation,
                  Flag ceil_mode) {
  check_defined("max_pool2d", x);
  check_sizes("max_pool2d", kernel, stride, padding);
  CHECK(dilation == Pair(1), "max_pool2d: the dilation is ", dilation,
        ", expected 1; unfold() gives other windows, whose max() is the same");
  if (x.dim() == 3)
    return squeeze(max_pool2d(unsqueeze(x, 0), kernel, stride, padding, 1, ceil_mode), 0);
  Tensor all = x;
  const Pair steps = stride == Pair(0) ? kernel : stride;
  if (ceil_mode && x.dim() == 4 && steps.h > 0 && steps.w > 0)
    all = pad(x,
              {0, lacking(x.size(3), kernel.w, steps.w, padding.w), 0,
               lacking(x.size(2), kernel.h, steps.h, padding.h)},
              -INFINITY);
  return max_pool2d(all, {.kernel = kernel, .stride = stride, .padding = padding});
}

Tensor avg_pool2d(const Tensor& x, Pair kernel, Pair stride, Pair padding, Flag ceil_mode,
                  Flag count_include_pad) {
  check_defined("avg_pool2d", x);
  check_sizes("avg_pool2d", kernel, stride, padding);
  if (x.dim() == 3)
    return squeeze(
        avg_pool2d(unsqueeze(x, 0), kernel, stride, padding, ceil_mode, count_include_pad), 0);
  const Pool2dOptions options = {
      .kernel = kernel, .stride = stride, .padding = padding, .count_padding = count_include_pad};
  const Pair steps = stride == Pair(0) ? kernel : stride;
  if (!ceil_mode || x.dim() != 4 || steps.h <= 0 || steps.w <= 0) return avg_pool2d(x, options);
  const int64_t below = lacking(x.size(2), kernel.h, steps.h, padding.h);
  const int64_t right = lacking(x.size(3), kernel.w, steps.w, padding.w);
  if (below == 0 && right == 0) return avg_pool2d(x, options);
  CHECK(padding.h <= kernel.h / 2 && padding.w <= kernel.w / 2, "avg_pool2d: the padding is ",
        padding, ", expected at most half the kernel ", kernel);
  // Averages whole windows, then divides by the part of each window that counts.
  const Pool2dOptions whole = {.kernel = kernel, .stride = stride};
  const auto means = [&](const Tensor& images, double around) {
    const Tensor padded = pad(images, {padding.w, padding.w, padding.h, padding.h}, around);
    return avg_pool2d(pad(padded, {0, right, 0, below}), whole);
  };
  const Tensor counted =
      means(ones({1, 1, x.size(2), x.size(3)}, {x.dtype(), x.device()}), count_include_pad ? 1 : 0);
  return div(means(x, 0), counted);
}

}  // namespace ringgrad
