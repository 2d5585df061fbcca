// Reference: cross entropy.
#include <cmath>

#include "ringgrad/core/reference/rows.h"

namespace ringgrad::reference {
namespace {

void cross_entropy(Stream, const Tensor& loss_out, const Tensor& weight_out,
                   const Tensor& log_sum_exp_out, const Tensor& x_in, const Tensor& t,
                   const Tensor& class_weight, const kernels::CrossEntropyOptions& options) {
  const Elements<double> x(x_in);
  const Classes classes(t, class_weight, x.shape()[1], options.ignore_index);
  const Results<double> loss(loss_out);
  const Results<double> weight(weight_out);
  const Results<double> log_sum_exp(log_sum_exp_out);
  const double s = options.label_smoothing;
  for (int64_t n = 0; n < x.shape()[0]; ++n) {
    const LogSumExp of(x, n);
    log_sum_exp(n, 0) = of.largest;
    log_sum_exp(n, 1) = of.log_sum;
    loss(n) = classes.otherwise(n);
    weight(n) = classes.otherwise(n);
    if (!classes.has(n)) continue;
    const auto log_p = [&](int64_t c) { return x(n, c) - of.largest - of.log_sum; };
    const double u = classes.u(classes.target(n));
    double value = -(1 - s) * u * log_p(classes.target(n));
    for (int64_t c = 0; c < classes.count && s != 0; ++c)
      value -= s / static_cast<double>(classes.count) * classes.u(c) * log_p(c);
    loss(n) = value;
    weight(n) = u;
  }
}

// d log p[c] / dx[j] = (c == j) - p[j]. So each class c adds (p[j] - (c == j)) times its weight in
// the loss.
void cross_entropy_backward(Stream, const Tensor& dx_out, const Tensor& scale_in,
                            const Tensor& x_in, const Tensor& log_sum_exp_in, const Tensor& t,
                            const Tensor& class_weight,
                            const kernels::CrossEntropyOptions& options) {
  const Elements<double> x(x_in);
  const Elements<double> scale(scale_in);
  const Elements<double> log_sum_exp(log_sum_exp_in);
  const Classes classes(t, class_weight, x.shape()[1], options.ignore_index);
  const Results<double> dx(dx_out);
  const double s = options.label_smoothing;
  for (int64_t n = 0; n < x.shape()[0]; ++n) {
    const auto weight_in_loss = [&](int64_t c) {
      const double smooth = s / static_cast<double>(classes.count) * classes.u(c);
      return smooth + (c == classes.target(n) ? (1 - s) * classes.u(c) : 0);
    };
    double all = 0;
    for (int64_t c = 0; c < classes.count; ++c) all += weight_in_loss(c);
    for (int64_t j = 0; j < classes.count; ++j) {
      const double p = std::exp(x(n, j) - log_sum_exp(n, 0) - log_sum_exp(n, 1));
      dx(n, j) = classes.has(n) ? scale(n) * (p * all - weight_in_loss(j)) : classes.otherwise(n);
    }
  }
}

REFERENCE(cross_entropy);
REFERENCE(cross_entropy_backward);

}  // namespace
}  // namespace ringgrad::reference
