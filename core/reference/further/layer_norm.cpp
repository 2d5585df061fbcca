// Reference: layer normalisation of rows x [N, C].
#include <cmath>
#include <limits>

#include "ringgrad/core/kernels.h"
#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Gives the position in weight and bias that serves column c of row n.
struct Parameters {
  int64_t rows;
  int64_t groups;
  int64_t columns;
  int64_t count;  // numbers per group, for a row of `columns`
  Parameters(const Tensor& x, int64_t groups, std::initializer_list<Tensor> parameters)
      : rows(x.size(0)), groups(groups), columns(x.size(1)), count(1) {
    for (const Tensor& parameter : parameters)
      if (parameter.defined()) count = parameter.numel() / groups;
  }
  int64_t operator()(int64_t n, int64_t c) const {
    return n % groups * count + c / (columns / count);
  }
};

void layer_norm(Stream, const Tensor& y_out, const Tensor& mean_out, const Tensor& rstd_out,
                const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in, int64_t groups,
                double eps) {
  const Elements<double> x(x_in);
  const Elements<double> weight(flat(weight_in));
  const Elements<double> bias(flat(bias_in));
  const Results<double> y(y_out);
  const Results<double> mean_of(mean_out);
  const Results<double> rstd_of(rstd_out);
  const Parameters parameter(x_in, groups, {weight_in, bias_in});
  for (int64_t n = 0; n < parameter.rows; ++n) {
    double mean = 0;
    double variance = 0;
    const auto columns = static_cast<double>(parameter.columns);
    for (int64_t c = 0; c < parameter.columns; ++c) mean += x(n, c) / columns;
    for (int64_t c = 0; c < parameter.columns; ++c)
      variance += (x(n, c) - mean) * (x(n, c) - mean) / columns;
    const double rstd = 1 / std::sqrt(variance + eps);
    for (int64_t c = 0; c < parameter.columns; ++c) {
      const int64_t i = parameter(n, c);
      y(n, c) = weight.value_or(1, i) * (x(n, c) - mean) * rstd + bias.value_or(0, i);
    }
    mean_of(n) = mean;
    rstd_of(n) = rstd;
  }
}

// With g = weight dy: dx = rstd (g - mean(g) - xhat mean(g xhat)).
void layer_norm_backward(Stream, const Tensor& dx_out, const Tensor& dweight_out,
                         const Tensor& dbias_out, const Tensor& dy_in, const Tensor& x_in,
                         const Tensor& mean_in, const Tensor& rstd_in, const Tensor& weight_in,
                         int64_t groups) {
  const Elements<double> dy(dy_in);
  const Elements<double> x(x_in);
  const Elements<double> mean(mean_in);
  const Elements<double> rstd(rstd_in);
  const Elements<double> weight(flat(weight_in));
  const Results<double> dx(dx_out);
  const Results<double> dweight(flat(dweight_out));
  const Results<double> dbias(flat(dbias_out));
  const Parameters parameter(x_in, groups, {weight_in, dweight_out, dbias_out});
  const auto columns = static_cast<double>(parameter.columns);
  Sums weights({parameter.groups * parameter.count});
  Sums biases({parameter.groups * parameter.count});
  for (int64_t n = 0; n < parameter.rows; ++n) {
    const auto g = [&](int64_t c) { return weight.value_or(1, parameter(n, c)) * dy(n, c); };
    const auto xhat = [&](int64_t c) { return (x(n, c) - mean(n)) * rstd(n); };
    double mean_g = 0;
    double mean_g_xhat = 0;
    for (int64_t c = 0; c < parameter.columns; ++c) {
      mean_g += g(c) / columns;
      mean_g_xhat += g(c) * xhat(c) / columns;
      weights(parameter(n, c)) += dy(n, c) * xhat(c);
      biases(parameter(n, c)) += dy(n, c);
    }
    for (int64_t c = 0; c < parameter.columns; ++c)
      dx(n, c) = rstd(n) * (g(c) - mean_g - xhat(c) * mean_g_xhat);
  }
  for (int64_t i = 0; i < parameter.groups * parameter.count; ++i) {
    if (dweight) dweight(i) = weights(i);
    if (dbias) dbias(i) = biases(i);
  }
}

REFERENCE(layer_norm);
REFERENCE(layer_norm_backward);

}  // namespace
}  // namespace ringgrad::reference
