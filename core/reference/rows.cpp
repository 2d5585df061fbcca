// Reference: what works on rows x [N, C]: softmax, and the losses that take classes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// m = max_c x and log Σ e^(x - m) of row n.
struct LogSumExp {
  double largest;
  double log_sum;
  LogSumExp(const Elements<double>& x, int64_t n) : largest(x(n, 0)) {
    const int64_t columns = x.shape()[1];
    for (int64_t c = 1; c < columns; ++c) largest = std::max(largest, double{x(n, c)});
    double sum = 0;
    for (int64_t c = 0; c < columns; ++c) sum += std::exp(x(n, c) - largest);
    log_sum = std::log(sum);
  }
};

void log_softmax(Stream, const Tensor& y_out, const Tensor& x_in) {
  const Elements<double> x(x_in);
  const Results<double> y(y_out);
  for (int64_t n = 0; n < x.shape()[0]; ++n) {
    const LogSumExp of(x, n);
    for (int64_t c = 0; c < x.shape()[1]; ++c) y(n, c) = x(n, c) - of.largest - of.log_sum;
  }
}
void softmax(Stream, const Tensor& y_out, const Tensor& x_in) {
  const Elements<double> x(x_in);
  const Results<double> y(y_out);
  for (int64_t n = 0; n < x.shape()[0]; ++n) {
    const LogSumExp of(x, n);
    for (int64_t c = 0; c < x.shape()[1]; ++c)
      y(n, c) = std::exp(x(n, c) - of.largest - of.log_sum);
  }
}

void softmax_backward(Stream, const Tensor& dx_out, const Tensor& dy_in, const Tensor& y_in) {
  const Elements<double> dy(dy_in);
  const Elements<double> y(y_in);
  const Results<double> dx(dx_out);
  for (int64_t n = 0; n < y.shape()[0]; ++n) {
    double sum = 0;
    for (int64_t c = 0; c < y.shape()[1]; ++c) sum += dy(n, c) * y(n, c);
    for (int64_t c = 0; c < y.shape()[1]; ++c) dx(n, c) = y(n, c) * (dy(n, c) - sum);
  }
}
void log_softmax_backward(Stream, const Tensor& dx_out, const Tensor& dy_in, const Tensor& y_in) {
  const Elements<double> dy(dy_in);
  const Elements<double> y(y_in);
  const Results<double> dx(dx_out);
  for (int64_t n = 0; n < y.shape()[0]; ++n) {
    double sum = 0;
    for (int64_t c = 0; c < y.shape()[1]; ++c) sum += dy(n, c);
    for (int64_t c = 0; c < y.shape()[1]; ++c) dx(n, c) = dy(n, c) - std::exp(y(n, c)) * sum;
  }
}

// The weights of classes, 1 where none are given, and what a target asks for.
struct Classes {
  Elements<int64_t> target;
  Elements<double> weight;
  int64_t count;
  int64_t ignore_index;
  Classes(const Tensor& t, const Tensor& class_weight, int64_t count, int64_t ignore_index)
      : target(t), weight(class_weight), count(count), ignore_index(ignore_index) {}
  bool has(int64_t n) const {
    return target(n) != ignore_index && target(n) >= 0 && target(n) < count;
  }
  // In the place of a result.
  double otherwise(int64_t n) const { return target(n) == ignore_index ? 0 : kNaN; }
  double u(int64_t c) const { return weight.value_or(1, c); }
};

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

// d log p[c] / dx[j] = (c == j) - p[j], so that each class c adds (p[j] - (c == j)) times its
// weight in the loss.
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

REGISTER_KERNEL(softmax, DeviceType::CPU, Provider::Reference, softmax);
REGISTER_KERNEL(softmax_backward, DeviceType::CPU, Provider::Reference, softmax_backward);
REGISTER_KERNEL(log_softmax, DeviceType::CPU, Provider::Reference, log_softmax);
REGISTER_KERNEL(log_softmax_backward, DeviceType::CPU, Provider::Reference, log_softmax_backward);
REGISTER_KERNEL(cross_entropy, DeviceType::CPU, Provider::Reference, cross_entropy);
REGISTER_KERNEL(cross_entropy_backward, DeviceType::CPU, Provider::Reference,
                cross_entropy_backward);
REGISTER_KERNEL(nll_loss, DeviceType::CPU, Provider::Reference, nll_loss);
REGISTER_KERNEL(nll_loss_backward, DeviceType::CPU, Provider::Reference, nll_loss_backward);

}  // namespace
}  // namespace ringgrad::reference
