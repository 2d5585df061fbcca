#include "ringgrad/nn/init.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"

namespace ringgrad::nn::init {
namespace {

void symmetric_uniform_(const Tensor& x, double bound) { ringgrad::uniform_(x, -bound, bound); }

double kaiming_std(const Tensor& weight, const KaimingOptions& options) {
  const Fans both = fans(weight);
  const int64_t fan = options.mode == FanMode::FanIn ? both.in : both.out;
  return std::sqrt(
      2 / ((1 + options.negative_slope * options.negative_slope) * static_cast<double>(fan)));
}

double xavier_std(const Tensor& weight, double gain) {
  const Fans both = fans(weight);
  return gain * std::sqrt(2 / static_cast<double>(both.in + both.out));
}

}  // namespace

Fans fans(const Tensor& weight) {
  CHECK(weight.defined(), "init: the weight is an undefined tensor, expected one with elements");
  CHECK_AS(ShapeError, weight.dim() >= 2, "init: the weight has shape ", weight.shape(),
           ", expected at least two dimensions");
  int64_t field = 1;  // the receptive field
  for (int d = 2; d < weight.dim(); ++d) field *= weight.size(d);
  return {.in = weight.size(1) * field, .out = weight.size(0) * field};
}

void kaiming_normal_(const Tensor& weight, KaimingOptions options) {
  ringgrad::normal_(weight, 0, kaiming_std(weight, options));
}
void kaiming_uniform_(const Tensor& weight, KaimingOptions options) {
  symmetric_uniform_(weight, std::sqrt(3.0) * kaiming_std(weight, options));
}

void xavier_normal_(const Tensor& weight, Real gain) {
  ringgrad::normal_(weight, 0, xavier_std(weight, gain));
}
void xavier_uniform_(const Tensor& weight, Real gain) {
  symmetric_uniform_(weight, std::sqrt(3.0) * xavier_std(weight, gain));
}

void normal_(const Tensor& x, Real mean, Real std) { ringgrad::normal_(x, mean, std); }
void uniform_(const Tensor& x, Real low, Real high) { ringgrad::uniform_(x, low, high); }
void constant_(const Tensor& x, Real value) { fill_(x, value); }

// Gram and Schmidt's process, twice for each row (Giraud & Langou 2003: that is enough), on the
// host.
void orthogonal_(const Tensor& weight, Real gain) {
  fans(weight);  // at least two dimensions
  const int64_t rows = weight.size(0), columns = rows > 0 ? weight.numel() / rows : 0;
  const int64_t count = std::min(rows, columns), length = std::max(rows, columns);
  std::vector<double> q = to_vector<double>(
      randn({count, length}, {.dtype = DType::Float64, .device = weight.device()}));
  const auto product = [&](int64_t a, int64_t b) {
    return std::inner_product(&q[a * length], &q[a * length] + length, &q[b * length], 0.0);
  };
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t other = 0; other < 2 * row; ++other) {
      const int64_t before = other % row;
      const double part = product(row, before);
      for (int64_t i = 0; i < length; ++i) q[row * length + i] -= part * q[before * length + i];
    }
    const double scale = 1 / std::sqrt(product(row, row));
    for (int64_t i = 0; i < length; ++i) q[row * length + i] *= scale;
  }
  std::vector<double> values(weight.numel());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      values[r * columns + c] = gain * (rows <= columns ? q[r * length + c] : q[c * length + r]);
  copy_(weight, tensor(values, weight.shape()));
}

void dirac_(const Tensor& weight) {
  CHECK_AS(ShapeError, weight.defined() && weight.dim() >= 3, "init::dirac_: the weight has ",
           weight.dim(), " dimensions, expected [out, in, R, S…]");
  std::vector<double> values(weight.numel());
  int64_t field = 1, middle = 0;
  for (int d = 2; d < weight.dim(); ++d) {
    field *= weight.size(d);
    middle = middle * weight.size(d) + weight.size(d) / 2;
  }
  for (int64_t i = 0; i < std::min(weight.size(0), weight.size(1)); ++i)
    values[(i * weight.size(1) + i) * field + middle] = 1;
  copy_(weight, tensor(values, weight.shape()));
}

void layer_default_(const Tensor& weight, const Tensor& bias) {
  const double bound = 1 / std::sqrt(static_cast<double>(fans(weight).in));
  symmetric_uniform_(weight, bound);
  if (bias) symmetric_uniform_(bias, bound);
}

}  // namespace ringgrad::nn::init
