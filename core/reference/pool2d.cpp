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
  int64_t size() const { return end - begin; }
};
struct Window {
  Range rows;
  Range columns;
  int64_t divisor;  // of its average
};

// Returns the window of output i of x, without the part in the padding.
Window window(const Shape& i, const Shape& x, const Pool2dOptions& o) {
  const auto along = [](int64_t at, int64_t kernel, int64_t stride, int64_t padding, int64_t size) {
    const int64_t first = at * stride - padding;
    return Range{std::max<int64_t>(first, 0), std::min(first + kernel, size)};
  };
  const Range rows = along(i[2], o.kernel.h, o.stride.h, o.padding.h, x[2]);
  const Range columns = along(i[3], o.kernel.w, o.stride.w, o.padding.w, x[3]);
  return {rows, columns, o.count_padding ? o.kernel.h * o.kernel.w : rows.size() * columns.size()};
}
// Returns the window of output i of y if the windows cover x evenly: along an axis ⌊i size / count⌋
// … ⌈(i + 1) size / count⌉ - 1.
Window even_window(const Shape& i, const Shape& x, const Shape& y) {
  const auto along = [&](int axis) {
    const int64_t begin = i[axis] * x[axis];
    return Range{begin / y[axis], (begin + x[axis] + y[axis] - 1) / y[axis]};
  };
  const Range rows = along(2);
  const Range columns = along(3);
  return {rows, columns, rows.size() * columns.size()};
}

void max_pool2d(Stream, const Tensor& y_out, const Tensor& index_out, const Tensor& x_in,
                const Pool2dOptions& o) {
  const Elements<double> x(x_in);
  const Results<double> y(y_out);
  const Results<int64_t> index(index_out);
  const int64_t width = x.shape()[3];
  for_each_index(y.shape(), [&](const Shape& i) {
    const auto [rows, columns, divisor] = window(i, x.shape(), o);
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

// y = the mean of each window. window_of(i) is that of output i.
template <class WindowOf>
void averages(const Tensor& y_out, const Tensor& x_in, const WindowOf& window_of) {
  const Elements<double> x(x_in);
  const Results<double> y(y_out);
  for_each_index(y.shape(), [&](const Shape& i) {
    const auto [rows, columns, divisor] = window_of(i);
    double sum = 0;
    for (int64_t h = rows.begin; h < rows.end; ++h)
      for (int64_t w = columns.begin; w < columns.end; ++w) sum += x(i[0], i[1], h, w);
    y(i) = sum / static_cast<double>(divisor);
  });
}
// Each dx is the sum of dy / divisor over the windows that contain it.
template <class WindowOf>
void averages_backward(const Tensor& dx_out, const Tensor& dy_in, const WindowOf& window_of) {
  const Elements<double> dy(dy_in);
  const Results<double> dx(dx_out);
  Sums sums(dx.shape());
  for_each_index(dy.shape(), [&](const Shape& i) {
    const auto [rows, columns, divisor] = window_of(i);
    for (int64_t h = rows.begin; h < rows.end; ++h)
      for (int64_t w = columns.begin; w < columns.end; ++w)
        sums(i[0], i[1], h, w) += dy(i) / static_cast<double>(divisor);
  });
  for_each_index(dx.shape(), [&](const Shape& i) { dx(i) = sums(i); });
}

void avg_pool2d(Stream, const Tensor& y, const Tensor& x, const Pool2dOptions& o) {
  averages(y, x, [&](const Shape& i) { return window(i, x.shape(), o); });
}
void avg_pool2d_backward(Stream, const Tensor& dx, const Tensor& dy, const Pool2dOptions& o) {
  averages_backward(dx, dy, [&](const Shape& i) { return window(i, dx.shape(), o); });
}
void adaptive_avg_pool2d(Stream, const Tensor& y, const Tensor& x) {
  averages(y, x, [&](const Shape& i) { return even_window(i, x.shape(), y.shape()); });
}
void adaptive_avg_pool2d_backward(Stream, const Tensor& dx, const Tensor& dy) {
  averages_backward(dx, dy, [&](const Shape& i) { return even_window(i, dx.shape(), dy.shape()); });
}

REFERENCE(max_pool2d);
REFERENCE(max_pool2d_backward);
REFERENCE(avg_pool2d);
REFERENCE(avg_pool2d_backward);
REFERENCE(adaptive_avg_pool2d);
REFERENCE(adaptive_avg_pool2d_backward);

}  // namespace
}  // namespace ringgrad::reference
