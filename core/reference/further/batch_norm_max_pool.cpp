// Reference: batch normalisation followed by max pooling.
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/reference/batch_norm.h"

namespace ringgrad::reference {
namespace {

void batch_norm_max_pool(Stream, const Tensor& y_out, const Tensor& winners_out,
                         const Tensor& index_out, const Tensor& x_in, const Tensor& mean,
                         const Tensor& var, const Tensor& weight_in, const Tensor& bias_in,
                         double eps, bool relu, int64_t window) {
  const Normalization of(x_in, mean, var, eps);
  const Elements<double> weight(weight_in);
  const Elements<double> bias(bias_in);
  const Results<double> y(y_out);
  const Results<double> winners(winners_out);
  const Results<int64_t> index(index_out);
  for_each_index(y.shape(), [&](const Shape& i) {
    double best = 0;
    Shape place;
    for_each_index({window, window}, [&](const Shape& tap) {
      const Shape at = {i[0], i[1], i[2] * window + tap[0], i[3] * window + tap[1]};
      const double value = weight.value_or(1, i[1]) * of.xhat(at) + bias.value_or(0, i[1]);
      if (place.dim() > 0 && !(value > best || (std::isnan(value) && !std::isnan(best)))) return;
      best = value;
      place = at;
    });
    y(i) = relu ? relu_of(best) : best;
    winners(i) = of.x(place);
    index(i) = place[2] * x_in.size(3) + place[3];
  });
}

void batch_norm_max_pool_backward(Stream, const Tensor& dx_out, const Tensor& dy_in,
                                  const Tensor& index_in, const Tensor& x, const Tensor& y,
                                  const Tensor& mean, const Tensor& var, const Tensor& weight,
                                  const Tensor& sum_dy, const Tensor& sum_dy_xhat, double eps,
                                  double count, int64_t) {
  const Gradient gradient = {Normalization(x, mean, var, eps), Elements<double>(weight),
                             Elements<double>(sum_dy), Elements<double>(sum_dy_xhat), count};
  const Rectified rectified(dy_in, y);
  const Elements<int64_t> index(index_in);
  const Results<double> dx(dx_out);
  Sums g(x.shape());
  for_each_index(dy_in.shape(), [&](const Shape& i) {
    const int64_t place = index(i);
    g(i[0], i[1], place / x.size(3), place % x.size(3)) = rectified(i);
  });
  for_each_index(x.shape(), [&](const Shape& i) { dx(i) = gradient(i, g(i)); });
}

REFERENCE(batch_norm_max_pool);
REFERENCE(batch_norm_max_pool_backward);

}  // namespace
}  // namespace ringgrad::reference
