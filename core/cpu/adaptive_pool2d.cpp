// Adaptive average pooling on the CPU. Windows divide a plane into P × Q parts, and overlap if it
// does not divide evenly. P = Q = 1 is the global average at the end of a ResNet.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/pool2d_blocked.h"
#include "ringgrad/core/cpu/widen.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad::cpu {
namespace {

// The rows (columns) of window i: ⌊i size / parts⌋ … ⌈(i + 1) size / parts⌉ - 1.
struct Part {
  int64_t begin;
  int64_t end;
  Part(int64_t i, int64_t parts, int64_t size)
      : begin(i * size / parts), end(ceil_div((i + 1) * size, parts)) {}
};

// Calls body(plane offset in x, offset in y, rows, columns) for every output element.
template <class Body>
void for_each_part(Stream stream, const Tensor& x, const Tensor& y, Body&& body) {
  ASSERT(x.is_contiguous() && y.is_contiguous() && x.shape()[0] == y.shape()[0] &&
         x.shape()[1] == y.shape()[1]);
  const int64_t h = x.shape()[2];
  const int64_t w = x.shape()[3];
  const int64_t p = y.shape()[2];
  const int64_t q = y.shape()[3];
  parallel_for(stream, x.shape()[0] * x.shape()[1], grain(h * w), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane)
      for (int64_t i = 0; i < p; ++i)
        for (int64_t j = 0; j < q; ++j)
          body(plane * h * w, (plane * p + i) * q + j, Part(i, p, h), Part(j, q, w));
  });
}

void adaptive_avg_pool2d_cpu(Stream stream, const Tensor& y, const Tensor& x) {
  if (x.is_channel_blocked()) return adaptive_avg_pool2d_blocked(stream, y, x);
  const int64_t width = x.shape()[3];
  visit_floating("adaptive_avg_pool2d", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    for_each_part(stream, x, y, [&](int64_t plane, int64_t at, Part rows, Part columns) {
      // A window as wide as the plane is one contiguous run.
      const bool whole = columns.end - columns.begin == width;
      const int64_t runs = whole ? 1 : rows.end - rows.begin;
      const int64_t n = whole ? (rows.end - rows.begin) * width : columns.end - columns.begin;
      WideSum<A> total = 0;
      for (int64_t r = 0; r < runs; ++r) {
        const T* const run = from + plane + (rows.begin + r) * width + columns.begin;
        total += sum_lanes<A>(n, [run](int64_t i) { return static_cast<A>(run[i]); });
      }
      to[at] = static_cast<T>(total / static_cast<WideSum<A>>(runs * n));
    });
  });
}

void adaptive_avg_pool2d_backward_cpu(Stream stream, const Tensor& dx, const Tensor& dy) {
  if (dx.is_channel_blocked()) return adaptive_avg_pool2d_backward_blocked(stream, dx, dy);
  if (is_16_bit(dx))
    return narrow_into(
        dx, [&](const Tensor& wide) { adaptive_avg_pool2d_backward_cpu(stream, wide, widen(dy)); });
  const int64_t width = dx.shape()[3];
  kernels::fill(dx, 0);
  visit_wide("adaptive_avg_pool2d", dx.dtype(), [&]<class T>() {
    T* const to = dx.data<T>();
    const T* const from = dy.data<T>();
    for_each_part(stream, dx, dy, [&](int64_t plane, int64_t at, Part rows, Part columns) {
      const T share =
          from[at] / static_cast<T>((rows.end - rows.begin) * (columns.end - columns.begin));
      for (int64_t h = rows.begin; h < rows.end; ++h)
        for (int64_t w = columns.begin; w < columns.end; ++w) to[plane + h * width + w] += share;
    });
  });
}

REGISTER_KERNEL(adaptive_avg_pool2d, CPU, Native, adaptive_avg_pool2d_cpu);
REGISTER_KERNEL(adaptive_avg_pool2d_backward, CPU, Native, adaptive_avg_pool2d_backward_cpu);

}  // namespace
}  // namespace ringgrad::cpu
