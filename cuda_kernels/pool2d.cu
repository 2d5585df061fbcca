// Max and average pooling of images, NCHW or NHWC.
//
// Mapping: one thread per element of the output: of y forward, of dx backward. Backward a thread adds up what the
// windows that cover its pixel send back, so that no atomics are needed and sums are the same at each run.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/cuda_kernels/common/device_types.cuh"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

constexpr int kThreads = 256;

struct Range {
  int64_t first, last;  // last is outside
};

// One dimension of a sliding window.
struct Window {
  int64_t size, stride, padding;

  // The pixels of window p that are not padding.
  __device__ __forceinline__ Range pixels(int64_t p, int64_t extent) const {
    const int64_t begin = p * stride - padding;
    return {max(begin, int64_t{0}), min(begin + size, extent)};
  }
  // The windows, of `count`, that contain pixel h.
  __device__ __forceinline__ Range windows(int64_t h, int64_t count) const {
    const int64_t past = h + padding - size;  // windows that begin here or before end before h
    return {past < 0 ? int64_t{0} : past / stride + 1, min((h + padding) / stride + 1, count)};
  }
};

// One dimension of adaptive pooling: window i of `count` covers ⌊i extent / count⌋ … ⌈(i + 1) extent / count⌉ - 1.
struct AdaptiveWindow {
  int64_t extent, count;

  __device__ __forceinline__ Range pixels(int64_t p) const {
    return {p * extent / count, ((p + 1) * extent + count - 1) / count};
  }
  __device__ __forceinline__ Range windows(int64_t h) const {
    return {h * count / extent, ((h + 1) * count + extent - 1) / extent};
  }
};

// ---- max pooling --------------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads)
    max_pool2d_kernel(Image y_shape, Image x_shape, Window rows, Window columns, T* y, int32_t* index, const T* x) {
  for (int64_t i = thread_number(); i < y_shape.numel(); i += thread_count()) {
    const auto [n, c, p, q] = y_shape.place(i);
    const Range hs = rows.pixels(p, x_shape.H), ws = columns.pixels(q, x_shape.W);
    int64_t best_h = hs.first, best_w = ws.first;
    Compute<T> best = widen(x[x_shape.at(n, c, best_h, best_w)]);
    for (int64_t h = hs.first; h < hs.last; ++h)
      for (int64_t w = ws.first; w < ws.last; ++w) {
        const Compute<T> value = widen(x[x_shape.at(n, c, h, w)]);
        // Beyond it, or the first NaN: of equals the first in row order stays.
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
    max_pool2d_backward_kernel(Image dx_shape, Image dy_shape, Window rows, Window columns, T* dx, const T* dy,
                               const int32_t* index) {
  for (int64_t i = thread_number(); i < dx_shape.numel(); i += thread_count()) {
    const auto [n, c, h, w] = dx_shape.place(i);
    const auto pixel = static_cast<int32_t>(h * dx_shape.W + w);
    const Range ps = rows.windows(h, dy_shape.H), qs = columns.windows(w, dy_shape.W);
    Compute<T> total = 0;
    for (int64_t p = ps.first; p < ps.last; ++p)
      for (int64_t q = qs.first; q < qs.last; ++q) {
        const int64_t at = dy_shape.at(n, c, p, q);
        if (index[at] == pixel) total += widen(dy[at]);
      }
    dx[i] = narrow<T>(total);
  }
}

// ---- average pooling ----------------------------------------------------------------------------------------------

// What a window's sum is divided by.
__device__ __forceinline__ int64_t divisor(Window rows, Window columns, Range hs, Range ws, bool count_padding) {
  return count_padding ? rows.size * columns.size : (hs.last - hs.first) * (ws.last - ws.first);
}

// Of one window, row by row: one chain of additions would be too long.
template <class T>
__device__ __forceinline__ Compute<T> window_sum(Image x_shape, int64_t n, int64_t c, Range hs, Range ws, const T* x) {
  Compute<T> total = 0;
  for (int64_t h = hs.first; h < hs.last; ++h) {
    Compute<T> row = 0;
    for (int64_t w = ws.first; w < ws.last; ++w) row += widen(x[x_shape.at(n, c, h, w)]);
    total += row;
  }
  return total;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    avg_pool2d_kernel(Image y_shape, Image x_shape, Window rows, Window columns, bool count_padding, T* y, const T* x) {
  using A = Compute<T>;
  for (int64_t i = thread_number(); i < y_shape.numel(); i += thread_count()) {
    const auto [n, c, p, q] = y_shape.place(i);
    const Range hs = rows.pixels(p, x_shape.H), ws = columns.pixels(q, x_shape.W);
    const A total = window_sum(x_shape, n, c, hs, ws, x);
    y[i] = narrow<T>(total / static_cast<A>(divisor(rows, columns, hs, ws, count_padding)));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    avg_pool2d_backward_kernel(Image dx_shape, Image dy_shape, Window rows, Window columns, bool count_padding, T* dx,
                               const T* dy) {
  using A = Compute<T>;
  for (int64_t i = thread_number(); i < dx_shape.numel(); i += thread_count()) {
    const auto [n, c, h, w] = dx_shape.place(i);
    const Range ps = rows.windows(h, dy_shape.H), qs = columns.windows(w, dy_shape.W);
    A total = 0;
    for (int64_t p = ps.first; p < ps.last; ++p)
      for (int64_t q = qs.first; q < qs.last; ++q) {
        const Range hs = rows.pixels(p, dx_shape.H), ws = columns.pixels(q, dx_shape.W);
        total += widen(dy[dy_shape.at(n, c, p, q)]) / static_cast<A>(divisor(rows, columns, hs, ws, count_padding));
      }
    dx[i] = narrow<T>(total);
  }
}

// ---- adaptive average pooling -------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads)
    adaptive_avg_pool2d_kernel(Image y_shape, Image x_shape, AdaptiveWindow rows, AdaptiveWindow columns, T* y,
                               const T* x) {
  using A = Compute<T>;
  for (int64_t i = thread_number(); i < y_shape.numel(); i += thread_count()) {
    const auto [n, c, p, q] = y_shape.place(i);
    const Range hs = rows.pixels(p), ws = columns.pixels(q);
    const A total = window_sum(x_shape, n, c, hs, ws, x);
    y[i] = narrow<T>(total / static_cast<A>((hs.last - hs.first) * (ws.last - ws.first)));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    adaptive_avg_pool2d_backward_kernel(Image dx_shape, Image dy_shape, AdaptiveWindow rows, AdaptiveWindow columns,
                                        T* dx, const T* dy) {
  using A = Compute<T>;
  for (int64_t i = thread_number(); i < dx_shape.numel(); i += thread_count()) {
    const auto [n, c, h, w] = dx_shape.place(i);
    const Range ps = rows.windows(h), qs = columns.windows(w);
    A total = 0;
    for (int64_t p = ps.first; p < ps.last; ++p)
      for (int64_t q = qs.first; q < qs.last; ++q) {
        const Range hs = rows.pixels(p), ws = columns.pixels(q);
        total += widen(dy[dy_shape.at(n, c, p, q)]) / static_cast<A>((hs.last - hs.first) * (ws.last - ws.first));
      }
    dx[i] = narrow<T>(total);
  }
}

// ---- launchers ----------------------------------------------------------------------------------------------------

struct Windows {
  Window rows, columns;
  explicit Windows(const Pool2dOptions& o)
      : rows{o.kernel.h, o.stride.h > 0 ? o.stride.h : o.kernel.h, o.padding.h},
        columns{o.kernel.w, o.stride.w > 0 ? o.stride.w : o.kernel.w, o.padding.w} {}
};

// One thread for each element of `output`, up to the usual number of blocks.
template <class... Params, class... Args>
void launch_per_element(Stream stream, const Tensor& output, void (*kernel)(Params...), const Args&... args) {
  launch(kernel, grid_stride_blocks(stream, output.numel(), kThreads), kThreads, 0, stream, args...);
}

void max_pool2d_cuda(Stream stream, const Tensor& y, const Tensor& index, const Tensor& x, const Pool2dOptions& o) {
  ASSERT(is_image(y) && is_image(x) && same_memory(index, y));
  const Windows windows(o);
  visit_floating("max_pool2d", x.dtype(), [&]<class T>() {
    launch_per_element(stream, y, max_pool2d_kernel<Element<T>>, Image(y), Image(x), windows.rows, windows.columns,
                       device_data<T>(y), index.data<int32_t>(), device_data<T>(x));
  });
}
void max_pool2d_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& index,
                              const Pool2dOptions& o) {
  ASSERT(is_image(dx) && is_image(dy) && same_memory(index, dy));
  const Windows windows(o);
  visit_floating("max_pool2d", dx.dtype(), [&]<class T>() {
    launch_per_element(stream, dx, max_pool2d_backward_kernel<Element<T>>, Image(dx), Image(dy), windows.rows,
                       windows.columns, device_data<T>(dx), device_data<T>(dy), index.data<int32_t>());
  });
}

void avg_pool2d_cuda(Stream stream, const Tensor& y, const Tensor& x, const Pool2dOptions& o) {
  ASSERT(is_image(y) && is_image(x));
  const Windows windows(o);
  visit_floating("avg_pool2d", x.dtype(), [&]<class T>() {
    launch_per_element(stream, y, avg_pool2d_kernel<Element<T>>, Image(y), Image(x), windows.rows, windows.columns,
                       o.count_padding, device_data<T>(y), device_data<T>(x));
  });
}
void avg_pool2d_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dy, const Pool2dOptions& o) {
  ASSERT(is_image(dx) && is_image(dy));
  const Windows windows(o);
  visit_floating("avg_pool2d", dx.dtype(), [&]<class T>() {
    launch_per_element(stream, dx, avg_pool2d_backward_kernel<Element<T>>, Image(dx), Image(dy), windows.rows,
                       windows.columns, o.count_padding, device_data<T>(dx), device_data<T>(dy));
  });
}

void adaptive_avg_pool2d_cuda(Stream stream, const Tensor& y, const Tensor& x) {
  ASSERT(is_image(y) && is_image(x));
  const Image to(y), from(x);
  visit_floating("adaptive_avg_pool2d", x.dtype(), [&]<class T>() {
    launch_per_element(stream, y, adaptive_avg_pool2d_kernel<Element<T>>, to, from, AdaptiveWindow{from.H, to.H},
                       AdaptiveWindow{from.W, to.W}, device_data<T>(y), device_data<T>(x));
  });
}
void adaptive_avg_pool2d_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dy) {
  ASSERT(is_image(dx) && is_image(dy));
  const Image to(dx), from(dy);
  visit_floating("adaptive_avg_pool2d", dx.dtype(), [&]<class T>() {
    launch_per_element(stream, dx, adaptive_avg_pool2d_backward_kernel<Element<T>>, to, from,
                       AdaptiveWindow{to.H, from.H}, AdaptiveWindow{to.W, from.W}, device_data<T>(dx),
                       device_data<T>(dy));
  });
}

REGISTER_KERNEL(max_pool2d, DeviceType::CUDA, Provider::Native, max_pool2d_cuda);
REGISTER_KERNEL(max_pool2d_backward, DeviceType::CUDA, Provider::Native, max_pool2d_backward_cuda);
REGISTER_KERNEL(avg_pool2d, DeviceType::CUDA, Provider::Native, avg_pool2d_cuda);
REGISTER_KERNEL(avg_pool2d_backward, DeviceType::CUDA, Provider::Native, avg_pool2d_backward_cuda);
REGISTER_KERNEL(adaptive_avg_pool2d, DeviceType::CUDA, Provider::Native, adaptive_avg_pool2d_cuda);
REGISTER_KERNEL(adaptive_avg_pool2d_backward, DeviceType::CUDA, Provider::Native, adaptive_avg_pool2d_backward_cuda);

}  // namespace
}  // namespace ringgrad::cuda
