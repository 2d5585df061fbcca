// Reference: batch normalisation of x [N, C, …].
#include "ringgrad/core/reference/batch_norm.h"

namespace ringgrad::reference {
namespace {

void batch_norm_stats(Stream, const Tensor& mean_out, const Tensor& var_out, const Tensor& x_in) {
  const Elements<double> x(x_in);
  const Results<double> mean(mean_out);
  const Results<double> var(var_out);
  const int64_t channels = x.shape()[1];
  const double count = static_cast<double>(x_in.numel()) / static_cast<double>(channels);
  Sums sums({channels});
  Sums squares({channels});
  for_each_index(x.shape(), [&](const Shape& i) { sums(i[1]) += x(i); });
  for_each_index(x.shape(), [&](const Shape& i) {
    const double deviation = x(i) - sums(i[1]) / count;
    squares(i[1]) += deviation * deviation;
  });
  for (int64_t c = 0; c < channels; ++c) {
    mean(c) = sums(c) / count;
    var(c) = squares(c) / count;
  }
}

void batch_norm_apply(Stream, const Tensor& y_out, const Tensor& positive, const Tensor& x,
                      const Tensor& mean, const Tensor& var, const Tensor& weight_in,
                      const Tensor& bias_in, const Tensor& residual_in, double eps, bool relu) {
  const Normalization of(x, mean, var, eps);
  const Elements<double> weight(weight_in);
  const Elements<double> bias(bias_in);
  const Elements<double> residual(residual_in);
  const Results<double> y(y_out);
  const Bits bits(positive, x.shape());
  for_each_index(y.shape(), [&](const Shape& i) {
    const double value =
        weight.value_or(1, i[1]) * of.xhat(i) + bias.value_or(0, i[1]) + residual.value_or(0, i);
    y(i) = relu ? relu_of(value) : value;
    if (positive.defined()) bits.set(i, value > 0);
  });
}

void batch_norm_backward_reduce(Stream, const Tensor& sum_dy_out, const Tensor& sum_dy_xhat_out,
                                const Tensor& dy, const Tensor& x, const Tensor& y,
                                const Tensor& mean, const Tensor& var, double eps) {
  const Normalization of(x, mean, var, eps);
  const Rectified g(dy, y);
  const Results<double> sum_dy(sum_dy_out);
  const Results<double> sum_dy_xhat(sum_dy_xhat_out);
  Sums sums(sum_dy.shape());
  Sums products(sum_dy.shape());
  for_each_index(dy.shape(), [&](const Shape& i) {
    sums(i[1]) += g(i);
    products(i[1]) += g(i) * of.xhat(i);
  });
  for (int64_t c = 0; c < x.size(1); ++c) {
    sum_dy(c) = sums(c);
    sum_dy_xhat(c) = products(c);
  }
}

void batch_norm_backward_apply(Stream, const Tensor& dx_out, const Tensor& dresidual_out,
                               const Tensor& dy, const Tensor& x, const Tensor& y,
                               const Tensor& mean, const Tensor& var, const Tensor& weight,
                               const Tensor& sum_dy, const Tensor& sum_dy_xhat, double eps,
                               double count) {
  const Gradient gradient = {Normalization(x, mean, var, eps), Elements<double>(weight),
                             Elements<double>(sum_dy), Elements<double>(sum_dy_xhat), count};
  const Rectified rectified(dy, y);
  const Results<double> dx(dx_out);
  const Results<double> dresidual(dresidual_out);
  for_each_index(x.shape(), [&](const Shape& i) {
    const double g = rectified(i);
    dx(i) = gradient(i, g);
    if (dresidual) dresidual(i) = g;
  });
}

REFERENCE(batch_norm_stats);
REFERENCE(batch_norm_apply);
REGISTER_KERNEL(batch_norm, CPU, Reference, batch_norm_in_steps);
REFERENCE(batch_norm_backward_reduce);
REFERENCE(batch_norm_backward_apply);
REGISTER_KERNEL(batch_norm_backward, CPU, Reference, batch_norm_backward_in_steps);

}  // namespace
}  // namespace ringgrad::reference
