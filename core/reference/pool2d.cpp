// Reference: pooling. Each output is computed from its window of pixels.
#include <algorithm>
#include <cmath>

#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

// Pixels [begin, end) along one axis.
struct Range {
  int64_t begin;
  int64_t end;
};

// Returns the window of output i along an axis of `size` pixels, without the part in the padding.
Range window(int64_t i, int64_t kernel, int64_t stride, int64_t padding, int64_t size) {
  const int64_t first = i * stride - padding;
  return {std::max<int64_t>(first, 0), std::min(first + kernel, size)};
}
// Returns window i of `count` windows that cover an axis evenly: ⌊i size / count⌋ … ⌈(i + 1) size /
// count⌉ - 1.
Range even_window(int64_t i, int64_t count, int64_t size) {
  return {i * size / count, ((i + 1) * size + count - 1) / count};
}

void max_pool2d(Stream, const Tensor& y_out, const Tensor& index_out, const Tensor& x_in,
                const Pool2dOptions& o) {
  const Elements<double> x(x_in);
  const Results<double> y(y_out);
  const Results<int64_t> index(index_out);
  const int64_t height = x.shape()[2];
  const int64_t width = x.shape()[3];
  for_each_index(y.shape(), [&](const Shape& i) {
    const Range rows = window(i[2], o.kernel.h, o.stride.h, o.padding.h, height);
    const Range columns = window(i[3], o.kernel.w, o.stride.w, o.padding.w, width);
    double best = x(i[0], i[1], rows.begin, columns.begin);
    int64_t place = rows.begin * width + columns.begin;
    for (int64_t h = rows.begin; h < rows.end; ++h)
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        const double value = x(i[0], i[1], h, w);
        if (!(value > best || (std::isnan(value) && !std::isnan(best)))) continue;
        best = value;
        place = h * width + w;
      }
    y(i) = best;
    index(i) = place;
  });
}

void max_pool2d_backward(Stream, const Tensor& dx_out, const Tensor& dy_in, const Tensor& index_in,
                         const Pool2dOptions&) {
  const Elements<double> dy(dy_in);
  const Elements<int64_t> index(index_in);
  const Results<double> dx(dx_out);
  const int64_t width = dx.shape()[3];
  Sums sums(dx.shape());
  for_each_index(dy.shape(), [&](const Shape& i) {
    const int64_t place = index(i);
    sums(i[0], i[1], place / width, place % width) += dy(i);
  });
  for_each_index(dx.shape(), [&](const Shape& i) { dx(i) = sums(i); });
}

// Calls body(rows, columns, divisor) with the window of output i.
template <class Body>
void average(const Shape& i, const Shape& x, const Pool2dOptions& o, const Body& body) {
  const Range rows = window(i[2], o.kernel.h, o.stride.h, o.padding.h, x[2]);
  const Range columns = window(i[3], o.kernel.w, o.stride.w, o.padding.w, x[3]);
  const int64_t inside = (rows.end - rows.begin) * (columns.end - columns.begin);
  body(rows, columns, static_cast<double>(o.count_padding ? o.kernel.h * o.kernel.w : inside));
}
template <class Body>
void even_average(const Shape& i, const Shape& x, const Shape& y, const Body& body) {
  const Range rows = even_window(i[2], y[2], x[2]);
  const Range columns = even_window(i[3], y[3], x[3]);
  body(rows, columns, static_cast<double>((rows.end - rows.begin) * (columns.end - columns.begin)));
}

// y = the mean of each window. windows(i, body) calls body with the window of output i.
template <class Windows>
void averages(const Tensor& y_out, const Tensor& x_in, const Windows& windows) {
  const Elements<double> x(x_in);
  const Results<double> y(y_out);
  for_each_index(y.shape(), [&](const Shape& i) {
    windows(i, [&](Range rows, Range columns, double divisor) {
      double sum = 0;
      for (int64_t h = rows.begin; h < rows.end; ++h)
        for (int64_t w = columns.begin; w < columns.end; ++w) sum += x(i[0], i[1], h, w);
      y(i) = sum / divisor;
    });
  });
}
// Each dx is the sum of dy / divisor over the windows that contain it.
template <class Windows>
void averages_backward(const Tensor& dx_out, const Tensor& dy_in, const Windows& windows) {
  const Elements<double> dy(dy_in);
  const Results<double> dx(dx_out);
  Sums sums(dx.shape());
  for_each_index(dy.shape(), [&](const Shape& i) {
    windows(i, [&](Range rows, Range columns, double divisor) {
      for (int64_t h = rows.begin; h < rows.end; ++h)
        for (int64_t w = columns.begin; w < columns.end; ++w)
          sums(i[0], i[1], h, w) += dy(i) / divisor;
    });
  });
  for_each_index(dx.shape(), [&](const Shape& i) { dx(i) = sums(i); });
}

void avg_pool2d(Stream, const Tensor& y, const Tensor& x, const Pool2dOptions& o) {
  averages(y, x, [&](const Shape& i, const auto& body) { average(i, x.shape(), o, body); });
}
void avg_pool2d_backward(Stream, const Tensor& dx, const Tensor& dy, const Pool2dOptions& o) {
  averages_backward(dx, dy,
                    [&](const Shape& i, const auto& body) { average(i, dx.shape(), o, body); });
}
void adaptive_avg_pool2d(Stream, const Tensor& y, const Tensor& x) {
  averages(y, x,
           [&](const Shape& i, const auto& body) { even_average(i, x.shape(), y.shape(), body); });
}
void adaptive_avg_pool2d_backward(Stream, const Tensor& dx, const Tensor& dy) {
  averages_backward(dx, dy, [&](const Shape& i, const auto& body) {
    even_average(i, dx.shape(), dy.shape(), body);
  });
}

REFERENCE(max_pool2d);
REFERENCE(max_pool2d_backward);
REFERENCE(avg_pool2d);
REFERENCE(avg_pool2d_backward);
REFERENCE(adaptive_avg_pool2d);
REFERENCE(adaptive_avg_pool2d_backward);

}  // namespace
}  // namespace ringgrad::reference
