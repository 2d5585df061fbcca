// Reference: softmax of rows x [N, C], and the loss of log-probabilities.
#include <cmath>

#include "ringgrad/core/kernels.h"
#include "ringgrad/core/reference/rows.h"

namespace ringgrad::reference {
namespace {

// y = result(log p) for each element, where p is the softmax of its row.
template <class Result>
void of_log_softmax(const Tensor& y_out, const Tensor& x_in, const Result& result) {
  const Elements<double> x(x_in);
  const Results<double> y(y_out);
  for (int64_t n = 0; n < x.shape()[0]; ++n) {
    const LogSumExp of(x, n);
    for (int64_t c = 0; c < x.shape()[1]; ++c) y(n, c) = result(x(n, c) - of.largest - of.log_sum);
  }
}
void log_softmax(Stream, const Tensor& y, const Tensor& x) {
  of_log_softmax(y, x, [](double log_p) { return log_p; });
}
void softmax(Stream, const Tensor& y, const Tensor& x) {
  of_log_softmax(y, x, [](double log_p) { return std::exp(log_p); });
}

// dx = result(dy, y, sum of term(dy, y) over the row).
template <class Term, class Result>
void with_row_sums(const Tensor& dx_out, const Tensor& dy_in, const Tensor& y_in, const Term& term,
                   const Result& result) {
  const Elements<double> dy(dy_in);
  const Elements<double> y(y_in);
  const Results<double> dx(dx_out);
  for (int64_t n = 0; n < y.shape()[0]; ++n) {
    double sum = 0;
    for (int64_t c = 0; c < y.shape()[1]; ++c) sum += term(dy(n, c), y(n, c));
    for (int64_t c = 0; c < y.shape()[1]; ++c) dx(n, c) = result(dy(n, c), y(n, c), sum);
  }
}
void softmax_backward(Stream, const Tensor& dx, const Tensor& dy, const Tensor& y) {
  with_row_sums(
      dx, dy, y, [](double g, double p) { return g * p; },
      [](double g, double p, double sum) { return p * (g - sum); });
}
void log_softmax_backward(Stream, const Tensor& dx, const Tensor& dy, const Tensor& y) {
  with_row_sums(
      dx, dy, y, [](double g, double) { return g; },
      [](double g, double log_p, double sum) { return g - std::exp(log_p) * sum; });
}

void nll_loss(Stream, const Tensor& loss_out, const Tensor& weight_out, const Tensor& x_in,
              const Tensor& t, const Tensor& class_weight, int64_t ignore_index) {
  const Elements<double> x(x_in);
  const Classes classes(t, class_weight, x.shape()[1], ignore_index);
  const Results<double> loss(loss_out);
  const Results<double> weight(weight_out);
  for (int64_t n = 0; n < x.shape()[0]; ++n) {
    loss(n) = classes.otherwise(n);
    weight(n) = classes.otherwise(n);
    if (!classes.has(n)) continue;
    weight(n) = classes.u(classes.target(n));
    loss(n) = -classes.u(classes.target(n)) * x(n, int64_t{classes.target(n)});
  }
}

void nll_loss_backward(Stream, const Tensor& dx_out, const Tensor& scale_in, const Tensor& t,
                       const Tensor& class_weight, int64_t ignore_index) {
  const Elements<double> scale(scale_in);
  const Results<double> dx(dx_out);
  const Classes classes(t, class_weight, dx.shape()[1], ignore_index);
  for_each_index(dx.shape(), [&](const Shape& i) {
    const int64_t n = i[0];
    const double hit = classes.target(n) == i[1] ? -scale(n) * classes.u(i[1]) : 0;
    dx(i) = classes.has(n) ? hit : classes.otherwise(n);
  });
}

REFERENCE(log_softmax);
REFERENCE(softmax);
REFERENCE(softmax_backward);
REFERENCE(log_softmax_backward);
REFERENCE(nll_loss);
REFERENCE(nll_loss_backward);

}  // namespace
}  // namespace ringgrad::reference
