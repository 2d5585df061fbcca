// Max and average pooling of contiguous NCHW on the CPU, plane by plane and one tap of the window
// at a time. im2col copies the inputs of a tap in the order of the outputs, so short windows do not
// mean short loops. For 2 × 2 windows on rows of 24 this is 7 times as fast as window by window,
// whose branches are unpredictable.
#include <limits>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/im2col.h"
#include "ringgrad/core/cpu/pool2d_blocked.h"
#include "ringgrad/core/cpu/widen.h"
#include "ringgrad/core/cpu/workspace.h"

namespace ringgrad::cpu {
namespace {

// The pooling of one plane as a convolution with one channel and one filter.
ConvShape pool_shape(const Tensor& x, const Tensor& y, const Pool2dOptions& o) {
  ASSERT(x.is_contiguous() && y.is_contiguous() && x.shape()[0] == y.shape()[0] &&
         x.shape()[1] == y.shape()[1]);
  return {.n = x.shape()[0] * x.shape()[1],
          .groups = 1,
          .c = 1,
          .h = x.shape()[2],
          .w = x.shape()[3],
          .k = 1,
          .r = o.kernel.h,
          .s = o.kernel.w,
          .p = y.shape()[2],
          .q = y.shape()[3],
          .stride = {o.stride.h > 0 ? o.stride.h : o.kernel.h,
                     o.stride.w > 0 ? o.stride.w : o.kernel.w},
          .padding = o.padding,
          .dilation = 1};
}

// Calls body(begin, end) for ranges of planes; a unit has several small planes.
template <class Body>
void for_planes(Stream stream, const ConvShape& shape, Body&& body) {
  parallel_for(stream, shape.n, grain(shape.h * shape.w), body);
}

// Computes the pixel at the upper left of each window, and the first pixel that is not padding.
void window_corners(const ConvShape& shape, int32_t* corner, int32_t* first) {
  for (int64_t i = 0; i < shape.p; ++i)
    for (int64_t j = 0; j < shape.q; ++j) {
      const int64_t h = i * shape.stride.h - shape.padding.h;
      const int64_t w = j * shape.stride.w - shape.padding.w;
      *corner++ = static_cast<int32_t>(h * shape.w + w);
      *first++ = static_cast<int32_t>(std::max<int64_t>(0, h) * shape.w + std::max<int64_t>(0, w));
    }
}

void max_pool2d_cpu(Stream stream, const Tensor& y, const Tensor& index, const Tensor& x,
                    const Pool2dOptions& options) {
  if (x.is_channel_blocked()) return max_pool2d_blocked(stream, y, index, x, options);
  if (is_16_bit(x))
    return narrow_into(
        y, [&](const Tensor& wide) { max_pool2d_cpu(stream, wide, index, widen(x), options); });
  const ConvShape shape = pool_shape(x, y, options);
  ASSERT(index.is_contiguous() && index.shape() == y.shape());
  const int64_t outputs = shape.p * shape.q;
  visit_wide("max_pool2d", x.dtype(), [&]<class T>() {
    for_planes(stream, shape, [&](int64_t begin, int64_t end) {
      const Workspace<T> seen(stream, outputs);
      const Workspace<int32_t> corner(stream, outputs);
      const Workspace<int32_t> first(stream, outputs);
      window_corners(shape, corner.data(), first.data());
      for (int64_t plane = begin; plane < end; ++plane) {
        const T* const from = x.data<T>() + plane * shape.h * shape.w;
        T* const best = y.data<T>() + plane * outputs;
        int32_t* const at = index.data<int32_t>() + plane * outputs;
        for (int64_t i = 0; i < outputs; ++i) {
          at[i] = first[i];
          best[i] = from[at[i]];
        }
        for (int64_t tap = 0; tap < shape.r * shape.s; ++tap) {
          const int64_t r = tap / shape.s;
          const int64_t s = tap % shape.s;
          unfold_plane(shape, r, s, 0, shape.p, seen.data(), from,
                       -std::numeric_limits<T>::infinity());
          const int32_t distance = static_cast<int32_t>(r * shape.w + s);
          for (int64_t i = 0; i < outputs; ++i) {
            const T v = seen[i];
            // Takes the value if it is larger, or the first NaN.
            const bool better = (v > best[i]) | ((v != v) & (best[i] == best[i]));
            best[i] = better ? v : best[i];
            at[i] = better ? corner[i] + distance : at[i];
          }
        }
      }
    });
  });
}

void max_pool2d_backward_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& index,
                             const Pool2dOptions& options) {
  if (dx.is_channel_blocked()) return max_pool2d_backward_blocked(stream, dx, dy, index, options);
  if (is_16_bit(dx))
    return narrow_into(dx, [&](const Tensor& wide) {
      max_pool2d_backward_cpu(stream, wide, widen(dy), index, options);
    });
  const ConvShape shape = pool_shape(dx, dy, options);
  ASSERT(index.is_contiguous() && index.shape() == dy.shape());
  const int64_t outputs = shape.p * shape.q;
  visit_wide("max_pool2d", dx.dtype(), [&]<class T>() {
    for_planes(stream, shape, [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        T* const to = dx.data<T>() + plane * shape.h * shape.w;
        const T* const from = dy.data<T>() + plane * outputs;
        const int32_t* const at = index.data<int32_t>() + plane * outputs;
        std::fill_n(to, shape.h * shape.w, T{0});
        for (int64_t i = 0; i < outputs; ++i) to[at[i]] += from[i];
      }
    });
  });
}

// Computes the factor of the sum over each window: 1 / its area, with or without the padding.
template <class T>
void window_scales(const ConvShape& shape, bool count_padding, T* scale) {
  const auto inside = [](int64_t start, int64_t kernel, int64_t size) {
    return std::min(size, start + kernel) - std::max<int64_t>(0, start);
  };
  for (int64_t i = 0; i < shape.p; ++i)
    for (int64_t j = 0; j < shape.q; ++j) {
      const int64_t area = count_padding
                               ? shape.r * shape.s
                               : inside(i * shape.stride.h - shape.padding.h, shape.r, shape.h) *
                                     inside(j * shape.stride.w - shape.padding.w, shape.s, shape.w);
      *scale++ = 1 / static_cast<T>(area);
    }
}

void avg_pool2d_cpu(Stream stream, const Tensor& y, const Tensor& x, const Pool2dOptions& options) {
  if (x.is_channel_blocked()) return avg_pool2d_blocked(stream, y, x, options);
  if (is_16_bit(x))
    return narrow_into(
        y, [&](const Tensor& wide) { avg_pool2d_cpu(stream, wide, widen(x), options); });
  const ConvShape shape = pool_shape(x, y, options);
  const int64_t outputs = shape.p * shape.q;
  visit_wide("avg_pool2d", x.dtype(), [&]<class T>() {
    for_planes(stream, shape, [&](int64_t begin, int64_t end) {
      const Workspace<T> seen(stream, outputs);
      const Workspace<T> scale(stream, outputs);
      const Workspace<double> sum(stream, outputs);
      window_scales(shape, options.count_padding, scale.data());
      for (int64_t plane = begin; plane < end; ++plane) {
        T* const to = y.data<T>() + plane * outputs;
        std::fill_n(sum.data(), outputs, 0.0);
        for (int64_t tap = 0; tap < shape.r * shape.s; ++tap) {
          unfold_plane(shape, tap / shape.s, tap % shape.s, 0, shape.p, seen.data(),
                       x.data<T>() + plane * shape.h * shape.w);
          for (int64_t i = 0; i < outputs; ++i) sum[i] += seen[i];
        }
        for (int64_t i = 0; i < outputs; ++i) to[i] = static_cast<T>(sum[i] * scale[i]);
      }
    });
  });
}

void avg_pool2d_backward_cpu(Stream stream, const Tensor& dx, const Tensor& dy,
                             const Pool2dOptions& options) {
  if (dx.is_channel_blocked()) return avg_pool2d_backward_blocked(stream, dx, dy, options);
  if (is_16_bit(dx))
    return narrow_into(
        dx, [&](const Tensor& wide) { avg_pool2d_backward_cpu(stream, wide, widen(dy), options); });
  const ConvShape shape = pool_shape(dx, dy, options);
  const int64_t outputs = shape.p * shape.q;
  visit_wide("avg_pool2d", dx.dtype(), [&]<class T>() {
    for_planes(stream, shape, [&](int64_t begin, int64_t end) {
      const Workspace<T> share(stream, outputs);
      const Workspace<T> scale(stream, outputs);
      window_scales(shape, options.count_padding, scale.data());
      for (int64_t plane = begin; plane < end; ++plane) {
        T* const to = dx.data<T>() + plane * shape.h * shape.w;
        const T* const from = dy.data<T>() + plane * outputs;
        std::fill_n(to, shape.h * shape.w, T{0});
        for (int64_t tap = 0; tap < shape.r * shape.s; ++tap) {
          // This is computed again each time, because folding overwrites it.
          for (int64_t i = 0; i < outputs; ++i) share[i] = from[i] * scale[i];
          fold_plane(shape, tap / shape.s, tap % shape.s, 0, shape.p, to, share.data());
        }
      }
    });
  });
}

REGISTER_KERNEL(max_pool2d, CPU, Native, max_pool2d_cpu);
REGISTER_KERNEL(max_pool2d_backward, CPU, Native, max_pool2d_backward_cpu);
REGISTER_KERNEL(avg_pool2d, CPU, Native, avg_pool2d_cpu);
REGISTER_KERNEL(avg_pool2d_backward, CPU, Native, avg_pool2d_backward_cpu);

}  // namespace
}  // namespace ringgrad::cpu
