// Reference: reductions along some dimensions other than plain sums.
#include <algorithm>
#include <cmath>

#include "ringgrad/core/kernels.h"
#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

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

// Finds the first element along N that no other one beats. A NaN is never beaten.
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

REFERENCE(squared_deviations);
REFERENCE(sum_squares);
REFERENCE(find_not_finite);
REFERENCE(max);
REFERENCE(min);

}  // namespace
}  // namespace ringgrad::reference
