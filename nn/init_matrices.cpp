// Initial weights that the book does not need: other distributions, and those computed as matrices.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/nn/init.h"

namespace ringgrad::nn::init {

static double xavier_std(const Tensor& weight, double gain) {
  const Fans both = fans(weight);
  return gain * std::sqrt(2 / static_cast<double>(both.in + both.out));
}

void xavier_normal_(const Tensor& weight, Real gain) {
  ringgrad::normal_(weight, 0, xavier_std(weight, gain));
}

void xavier_uniform_(const Tensor& weight, Real gain) {
  const double bound = std::sqrt(3.0) * xavier_std(weight, gain);
  ringgrad::uniform_(weight, -bound, bound);
}

void normal_(const Tensor& x, Real mean, Real std) { ringgrad::normal_(x, mean, std); }

void uniform_(const Tensor& x, Real low, Real high) { ringgrad::uniform_(x, low, high); }

void constant_(const Tensor& x, Real value) { fill_(x, value); }

// Runs the Gram-Schmidt process on the host, twice for each row, which is enough (Giraud & Langou
// 2003).
void orthogonal_(const Tensor& weight, Real gain) {
  fans(weight);  // at least two dimensions
  const int64_t rows = weight.size(0);
  const int64_t columns = rows > 0 ? weight.numel() / rows : 0;
  const int64_t count = std::min(rows, columns);
  const int64_t length = std::max(rows, columns);
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
  int64_t field = 1;
  int64_t middle = 0;
  for (int d = 2; d < weight.dim(); ++d) {
    field *= weight.size(d);
    middle = middle * weight.size(d) + weight.size(d) / 2;
  }
  for (int64_t i = 0; i < std::min(weight.size(0), weight.size(1)); ++i)
    values[(i * weight.size(1) + i) * field + middle] = 1;
  copy_(weight, tensor(values, weight.shape()));
}

}  // namespace ringgrad::nn::init
