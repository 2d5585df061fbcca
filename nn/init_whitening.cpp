// Filters that whiten images' patches. Their covariance has a dozen rows, so Jacobi rotations are
// fast enough.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/init.h"

namespace ringgrad::nn::init {
namespace {

// A symmetric matrix [n, n], stored by rows.
struct Symmetric {
  int64_t n;
  std::vector<double> values;
  double& at(int64_t row, int64_t column) { return values[row * n + column]; }
};

// Returns Σ p pᵀ / count over all patches p of size [channels, height, width], each as a row.
Symmetric patch_covariance(const Tensor& images, const Shape& patch) {
  const Tensor x = contiguous(to(images, DType::Float32));
  const int64_t channels = patch[0];
  const int64_t rows = x.size(2) - patch[1] + 1;
  const int64_t columns = x.size(3) - patch[2] + 1;
  const int64_t n = channels * patch[1] * patch[2];
  const int64_t count = x.size(0) * rows * columns;
  Symmetric sums{n, std::vector<double>(n * n)};
  std::vector<float> taken(n);
  for (int64_t p = 0; p < count; ++p) {
    const int64_t image = p / (rows * columns);
    const int64_t top = p / columns % rows;
    const int64_t left = p % columns;
    float* next = taken.data();
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t r = top; r < top + patch[1]; ++r)
        next = std::copy_n(
            x.data<float>() + ((image * channels + c) * x.size(2) + r) * x.size(3) + left, patch[2],
            next);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j) sums.at(i, j) += static_cast<double>(taken[i]) * taken[j];
  }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) sums.at(j, i) = sums.at(i, j) /= static_cast<double>(count);
  return sums;
}

// Transforms `a` into the diagonal of its eigenvalues and returns the eigenvectors as rows. Each
// rotation of two rows and columns clears one element, until none is left (Golub & Van Loan, Matrix
// Computations, 8.5).
Symmetric eigenvectors(Symmetric& a) {
  constexpr int kSweeps = 30;  // ten are usual
  const int64_t n = a.n;
  Symmetric vectors{n, std::vector<double>(n * n)};
  for (int64_t i = 0; i < n; ++i) vectors.at(i, i) = 1;
  for (int sweep = 0; sweep < kSweeps; ++sweep)
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        if (a.at(p, q) == 0) continue;
        const double tau = (a.at(q, q) - a.at(p, p)) / (2 * a.at(p, q));
        const double tangent = std::copysign(1 / (std::abs(tau) + std::sqrt(1 + tau * tau)), tau);
        const double cosine = 1 / std::sqrt(1 + tangent * tangent);
        const double sine = tangent * cosine;
        const auto rotate = [&](double& x, double& y) {
          const double before = x;
          x = cosine * x - sine * y;
          y = sine * before + cosine * y;
        };
        for (int64_t k = 0; k < n; ++k) rotate(a.at(k, p), a.at(k, q));
        for (int64_t k = 0; k < n; ++k) rotate(a.at(p, k), a.at(q, k));
        for (int64_t k = 0; k < n; ++k) rotate(vectors.at(p, k), vectors.at(q, k));
      }
  return vectors;
}

}  // namespace

void whitening_(const Tensor& weight, const Tensor& images, Real eps) {
  CHECK_AS(ShapeError,
           images.defined() && images.dim() == 4 && weight.defined() && weight.dim() == 4 &&
               images.size(1) == weight.size(1) && images.size(0) > 0 &&
               images.size(2) >= weight.size(2) && images.size(3) >= weight.size(3),
           "init::whitening_: images ", images.shape(), " and filters ", weight.shape(),
           ", expected images [N, C, H, W] that hold patches of filters [2 C R S, C, R, S]");
  const Shape patch = {weight.size(1), weight.size(2), weight.size(3)};
  const int64_t n = patch[0] * patch[1] * patch[2];
  CHECK_AS(ShapeError, weight.size(0) == 2 * n, "init::whitening_: ", weight.size(0),
           " filters of ", n, " weights, expected twice as many filters as weights, ", 2 * n);
  Symmetric covariance = patch_covariance(images, patch);
  Symmetric vectors = eigenvectors(covariance);
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return covariance.at(a, a) < covariance.at(b, b); });
  std::vector<double> filters;
  for (const double sign : {1, -1})
    for (const int64_t i : order)
      for (int64_t k = 0; k < n; ++k)
        filters.push_back(sign * vectors.at(i, k) /
                          std::sqrt(std::max(0.0, covariance.at(i, i)) + eps));
  copy_(weight, tensor(filters, weight.shape()));
}

}  // namespace ringgrad::nn::init
