// Max and average pooling of images, NCHW or NHWC.
//
// Mapping: one thread per element of the output, which is y forward and dx backward. In backward a
// thread adds what the windows that cover its pixel return. So no atomics are needed, and sums are
// the same in each run.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

struct Range {
  // [first, last)
  int64_t first;
  int64_t last;
};

// One dimension of sliding windows: `count` windows over `extent` pixels.
struct Window {
  int64_t size;
  int64_t stride;
  int64_t padding;
  int64_t extent;
  int64_t count;

  // Returns the pixels of window p that are not padding.
  __device__ __forceinline__ Range pixels(int64_t p) const {
    const int64_t begin = p * stride - padding;
    return {max(begin, int64_t{0}), min(begin + size, extent)};
  }
  // Returns the windows that contain pixel h.
  __device__ __forceinline__ Range windows(int64_t h) const {
    const int64_t past = h + padding - size;  // windows that begin here or before end before h
    return {past < 0 ? int64_t{0} : past / stride + 1, min((h + padding) / stride + 1, count)};
  }
};

// The same for adaptive pooling: window i covers ⌊i extent / count⌋ … ⌈(i + 1) extent / count⌉ - 1.
struct AdaptiveWindow {
  int64_t extent;
  int64_t count;

  __device__ __forceinline__ Range pixels(int64_t p) const {
    return {p * extent / count, ((p + 1) * extent + count - 1) / count};
  }
  __device__ __forceinline__ Range windows(int64_t h) const {
    return {h * count / extent, ((h + 1) * count + extent - 1) / extent};
  }
};

// ---- max pooling --------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads)
    max_pool2d_kernel(Image y_shape, Image x_shape, Window rows, Window columns, T* y,
                      int32_t* index, const T* x) {
  for (int64_t i = thread_number(); i < y_shape.numel(); i += thread_count()) {
    const auto [n, c, p, q] = y_shape.place(i);
    const Range hs = rows.pixels(p);
    const Range ws = columns.pixels(q);
    int64_t best_h = hs.first;
    int64_t best_w = ws.first;
    Compute<T> best = widen(x[x_shape.at(n, c, best_h, best_w)]);
    for (int64_t h = hs.first; h < hs.last; ++h)
      for (int64_t w = ws.first; w < ws.last; ++w) {
        const Compute<T> value = widen(x[x_shape.at(n, c, h, w)]);
        // Takes a value that is larger, or the first NaN. Of equal values the first in row order
        // stays.
        if (!(value > best) && !(value != value && best == best)) continue;
        best = value;
        best_h = h;
        best_w = w;
      }
    y[i] = narrow<T>(best);
    index[i] = static_cast<int32_t>(best_h * x_shape.W + best_w);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    max_pool2d_backward_kernel(Image dx_shape, Image dy_shape, Window rows, Window columns, T* dx,
                               const T* dy, const int32_t* index) {
  for (int64_t i = thread_number(); i < dx_shape.numel(); i += thread_count()) {
    const auto [n, c, h, w] = dx_shape.place(i);
    const auto pixel = static_cast<int32_t>(h * dx_shape.W + w);
    const Range ps = rows.windows(h);
    const Range qs = columns.windows(w);
    Compute<T> total = 0;
    for (int64_t p = ps.first; p < ps.last; ++p)
      for (int64_t q = qs.first; q < qs.last; ++q) {
        const int64_t at = dy_shape.at(n, c, p, q);
        if (index[at] == pixel) total += widen(dy[at]);
      }
    dx[i] = narrow<T>(total);
  }
}

// ---- average pooling ----------------------------------------------------------------------------

// W is Window or AdaptiveWindow. A window's sum is divided by `divisor`, or if that is 0 by the
// window's number of pixels.
template <class A>
__device__ __forceinline__ A divisor_of(Range hs, Range ws, int64_t divisor) {
  return static_cast<A>(divisor ? divisor : (hs.last - hs.first) * (ws.last - ws.first));
}

template <class T, class W>
__global__ void __launch_bounds__(kThreads)
    avg_pool2d_kernel(Image y_shape, Image x_shape, W rows, W columns, int64_t divisor, T* y,
                      const T* x) {
  using A = Compute<T>;
  for (int64_t i = thread_number(); i < y_shape.numel(); i += thread_count()) {
    const auto [n, c, p, q] = y_shape.place(i);
    const Range hs = rows.pixels(p);
    const Range ws = columns.pixels(q);
    A total = 0;
    for (int64_t h = hs.first; h < hs.last; ++h) {
      A row = 0;  // row by row, because one chain of additions would lose more digits
      for (int64_t w = ws.first; w < ws.last; ++w) row += widen(x[x_shape.at(n, c, h, w)]);
      total += row;
    }
    y[i] = narrow<T>(total / divisor_of<A>(hs, ws, divisor));
  }
}

template <class T, class W>
__global__ void __launch_bounds__(kThreads)
    avg_pool2d_backward_kernel(Image dx_shape, Image dy_shape, W rows, W columns, int64_t divisor,
                               T* dx, const T* dy) {
  using A = Compute<T>;
  for (int64_t i = thread_number(); i < dx_shape.numel(); i += thread_count()) {
    const auto [n, c, h, w] = dx_shape.place(i);
    const Range ps = rows.windows(h);
    const Range qs = columns.windows(w);
    A total = 0;
    for (int64_t p = ps.first; p < ps.last; ++p)
      for (int64_t q = qs.first; q < qs.last; ++q)
        total += widen(dy[dy_shape.at(n, c, p, q)]) /
                 divisor_of<A>(rows.pixels(p), columns.pixels(q), divisor);
    dx[i] = narrow<T>(total);
  }
}

// ---- launchers ----------------------------------------------------------------------------------

struct Windows {
  Window rows;
  Window columns;
  Windows(const Pool2dOptions& o, const Tensor& x, const Tensor& y)
      : rows{o.kernel.h, o.stride.h > 0 ? o.stride.h : o.kernel.h, o.padding.h, x.shape()[2],
             y.shape()[2]},
        columns{o.kernel.w, o.stride.w > 0 ? o.stride.w : o.kernel.w, o.padding.w, x.shape()[3],
                y.shape()[3]} {}
};
struct AdaptiveWindows {
  AdaptiveWindow rows;
  AdaptiveWindow columns;
  AdaptiveWindows(const Tensor& x, const Tensor& y)
      : rows{x.shape()[2], y.shape()[2]}, columns{x.shape()[3], y.shape()[3]} {}
};

void max_pool2d_cuda(Stream stream, const Tensor& y, const Tensor& index, const Tensor& x,
                     const Pool2dOptions& o) {
  ASSERT(is_image(y) && is_image(x) && same_memory(index, y));
  const Windows windows(o, x, y);
  visit_floating("max_pool2d", x.dtype(), [&]<class T>() {
    launch_elements(stream, y.numel(), max_pool2d_kernel<Element<T>>, Image(y), Image(x),
                    windows.rows, windows.columns, device_data<T>(y), index.data<int32_t>(),
                    device_data<T>(x));
  });
}
void max_pool2d_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dy,
                              const Tensor& index, const Pool2dOptions& o) {
  ASSERT(is_image(dx) && is_image(dy) && same_memory(index, dy));
  const Windows windows(o, dx, dy);
  visit_floating("max_pool2d", dx.dtype(), [&]<class T>() {
    launch_elements(stream, dx.numel(), max_pool2d_backward_kernel<Element<T>>, Image(dx),
                    Image(dy), windows.rows, windows.columns, device_data<T>(dx),
                    device_data<T>(dy), index.data<int32_t>());
  });
}

template <class W>
void average(const char* name, Stream stream, const Tensor& y, const Tensor& x, const W& windows,
             int64_t divisor) {
  ASSERT(is_image(y) && is_image(x));
  visit_floating(name, x.dtype(), [&]<class T>() {
    launch_elements(stream, y.numel(), avg_pool2d_kernel<Element<T>, decltype(windows.rows)>,
                    Image(y), Image(x), windows.rows, windows.columns, divisor, device_data<T>(y),
                    device_data<T>(x));
  });
}
template <class W>
void average_backward(const char* name, Stream stream, const Tensor& dx, const Tensor& dy,
                      const W& windows, int64_t divisor) {
  ASSERT(is_image(dx) && is_image(dy));
  visit_floating(name, dx.dtype(), [&]<class T>() {
    launch_elements(stream, dx.numel(),
                    avg_pool2d_backward_kernel<Element<T>, decltype(windows.rows)>, Image(dx),
                    Image(dy), windows.rows, windows.columns, divisor, device_data<T>(dx),
                    device_data<T>(dy));
  });
}

int64_t divisor(const Pool2dOptions& o) { return o.count_padding ? o.kernel.h * o.kernel.w : 0; }

void avg_pool2d_cuda(Stream stream, const Tensor& y, const Tensor& x, const Pool2dOptions& o) {
  average("avg_pool2d", stream, y, x, Windows(o, x, y), divisor(o));
}
void avg_pool2d_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dy,
                              const Pool2dOptions& o) {
  average_backward("avg_pool2d", stream, dx, dy, Windows(o, dx, dy), divisor(o));
}
void adaptive_avg_pool2d_cuda(Stream stream, const Tensor& y, const Tensor& x) {
  average("adaptive_avg_pool2d", stream, y, x, AdaptiveWindows(x, y), 0);
}
void adaptive_avg_pool2d_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dy) {
  average_backward("adaptive_avg_pool2d", stream, dx, dy, AdaptiveWindows(dx, dy), 0);
}

REGISTER_KERNEL(max_pool2d, CUDA, Native, max_pool2d_cuda);
REGISTER_KERNEL(max_pool2d_backward, CUDA, Native, max_pool2d_backward_cuda);
REGISTER_KERNEL(avg_pool2d, CUDA, Native, avg_pool2d_cuda);
REGISTER_KERNEL(avg_pool2d_backward, CUDA, Native, avg_pool2d_backward_cuda);
REGISTER_KERNEL(adaptive_avg_pool2d, CUDA, Native, adaptive_avg_pool2d_cuda);
REGISTER_KERNEL(adaptive_avg_pool2d_backward, CUDA, Native, adaptive_avg_pool2d_backward_cuda);

}  // namespace
}  // namespace ringgrad::cuda
