// Reference: what is made of all elements along some dimensions: sums and extremes.
#include <algorithm>
#include <cmath>

#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

// body(index in x) for each element that meets at index `at` of y, whose summed dimensions have
// size 1.
template <class Body>
void for_each_meeting(const Shape& at, const Shape& y, const Shape& x, const Body& body) {
  Shape summed = x;
  for (int d = 0; d < x.dim(); ++d)
    if (y[d] == x[d]) summed[d] = 1;
  for_each_index(summed, [&](Shape index) {
    for (int d = 0; d < x.dim(); ++d) index[d] += at[d];
    body(index);
  });
}

void sum(Stream, const Tensor& y_out, const Tensor& x_in, double scale) {
  if (x_in.dtype() == DType::Bool) throw_unsupported_dtype("sum", x_in.dtype(), "a number");
  with_numbers<uint64_t>(x_in.dtype(), [&]<class A>() {
    const Elements<A> x(x_in);
    const Results<A> y(y_out);
    for_each_index(y.shape(), [&](const Shape& i) {
      A total = 0;
      for_each_meeting(i, y.shape(), x.shape(), [&](const Shape& j) { total += x(j); });
      y(i) = scale == 1 ? total : number<A>(scale * static_cast<double>(total));
    });
  });
}

void squared_deviations(Stream, const Tensor& y_out, const Tensor& x_in, const Tensor& mean_in) {
  const Elements<double> x(x_in);
  const Elements<double> mean(mean_in);
  const Results<double> y(y_out);
  for_each_index(y.shape(), [&](const Shape& i) {
    double total = 0;
    for_each_meeting(i, y.shape(), x.shape(), [&](const Shape& j) {
      const double deviation = x(j) - mean.value_or(0, i);
      total += deviation * deviation;
    });
    y(i) = total;
  });
}

void sum_squares(Stream, const Tensor& y, const Tensor& x_in) {
  const Elements<double> x(x_in);
  double total = 0;
  for_each_index(x.shape(), [&](const Shape& i) { total += x(i) * x(i); });
  Results<double>(flat(y))(0) = total;
}

void find_not_finite(Stream, const Tensor& record_out, const Tensor& x_in, int64_t base) {
  const Elements<double> x(flat(x_in));
  const Results<int64_t> record(flat(record_out));
  for (int64_t i = 0; i < x_in.numel(); ++i)
    if (!std::isfinite(double{x(i)})) record(0) = std::min<int64_t>(record(0), base + i);
}

// The first element along N that no other one beats; a NaN is beaten by none.
template <class Beats>
void extreme(const Tensor& y_out, const Tensor& index_out, const Tensor& x_in, const Beats& beats) {
  with_numbers<int64_t>(x_in.dtype(), [&]<class A>() {
    const Elements<A> x(x_in);
    const Results<A> y(y_out);
    const Results<int64_t> index(index_out);
    for_each_index(y.shape(), [&](const Shape& i) {
      int64_t best = 0;
      for (int64_t n = 1; n < x.shape()[1]; ++n) {
        const A value = x(i[0], n, i[1]);
        const A so_far = x(i[0], best, i[1]);
        if (beats(value, so_far) || (value != value && so_far == so_far)) best = n;
      }
      y(i) = x(i[0], best, i[1]);
      index(i) = best;
    });
  });
}
void max(Stream, const Tensor& y, const Tensor& index, const Tensor& x) {
  extreme(y, index, x, [](auto value, auto best) { return value > best; });
}
void min(Stream, const Tensor& y, const Tensor& index, const Tensor& x) {
  extreme(y, index, x, [](auto value, auto best) { return value < best; });
}

REGISTER_KERNEL(sum, DeviceType::CPU, Provider::Reference, sum);
REGISTER_KERNEL(squared_deviations, DeviceType::CPU, Provider::Reference, squared_deviations);
REGISTER_KERNEL(sum_squares, DeviceType::CPU, Provider::Reference, sum_squares);
REGISTER_KERNEL(find_not_finite, DeviceType::CPU, Provider::Reference, find_not_finite);
REGISTER_KERNEL(max, DeviceType::CPU, Provider::Reference, max);
REGISTER_KERNEL(min, DeviceType::CPU, Provider::Reference, min);

}  // namespace
}  // namespace ringgrad::reference
