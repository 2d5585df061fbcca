// Softmax, cross entropy and layer normalisation on the CPU against their formulas in double.
#include <limits>

#include "core/cpu/vector_math.h"
#include "tests/cpu_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

using Values = std::vector<double>;

DType sum_dtype(DType dtype) { return dtype == DType::Float64 ? dtype : DType::Float32; }

double log_sum_exp(const Values& x, int64_t row, int64_t n) {
  double largest = x[row * n], sum = 0;
  for (int64_t c = 0; c < n; ++c) largest = std::max(largest, x[row * n + c]);
  for (int64_t c = 0; c < n; ++c) sum += std::exp(x[row * n + c] - largest);
  return largest + std::log(sum);
}

const std::vector<Shape> kRows{{1, 1}, {3, 10}, {5, 33}, {2, 1000}, {0, 4}};

}  // namespace

TEST_CASE("fast_exp is within two units in the last place", "[quick][cpu]") {
  for (float x = -88; x < 88.7f; x += 0.00737f) {
    const double exact = std::exp(static_cast<double>(x));
    REQUIRE(std::abs(cpu::fast_exp(x) - exact) <= 2 * exact * 0x1p-23);
  }
  REQUIRE(cpu::fast_exp(0.0f) == 1);
  REQUIRE(cpu::fast_exp(1000.0f) == std::numeric_limits<float>::infinity());
  REQUIRE(cpu::fast_exp(-1000.0f) == 0);
  REQUIRE(std::abs(cpu::fast_exp(-95.0f) - std::exp(-95.0)) <= 0x1p-149);  // subnormal
  REQUIRE(std::isnan(cpu::fast_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("softmax, log_softmax and their gradients", "[quick][cpu]") {
  for (DType dtype : kFloating)
    for (const Shape& shape : kRows) {
      INFO(shape << " " << dtype);
      const int64_t rows = shape[0], n = shape[1];
      const Tensor x = random_tensor(shape, dtype, 1, -8, 8), dy = random_tensor(shape, dtype, 2);
      const Tensor y = empty(shape, {.dtype = dtype}), dx = empty(shape, {.dtype = dtype});
      const double tolerance = sum_tolerance(dtype, n);
      const Values vx = values(x), vdy = values(dy);
      for (bool logarithm : {false, true}) {
        (logarithm ? kernels::log_softmax : kernels::softmax)(y, x);
        (logarithm ? kernels::log_softmax_backward : kernels::softmax_backward)(dx, dy, y);
        Values expected(vx.size()), expected_dx(vx.size());
        const Values vy = values(y);
        for (int64_t row = 0; row < rows; ++row) {
          double total = 0;
          for (int64_t c = row * n; c < (row + 1) * n; ++c) {
            expected[c] = vx[c] - log_sum_exp(vx, row, n);
            if (!logarithm) expected[c] = std::exp(expected[c]);
            total += logarithm ? vdy[c] : vdy[c] * vy[c];
          }
          for (int64_t c = row * n; c < (row + 1) * n; ++c)
            expected_dx[c] = logarithm ? vdy[c] - std::exp(vy[c]) * total : vy[c] * (vdy[c] - total);
        }
        require_close(y, expected, tolerance);
        require_close(dx, expected_dx, tolerance);
      }
    }
}

TEST_CASE("softmax does not overflow, and shows a NaN", "[quick][cpu]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = tensor<float>({1e30f, 0, 500, 500, 1, nan}, {3, 2}), y = empty({3, 2});
  kernels::softmax(y, x);
  require_close(y, {1, 0, 0.5, 0.5, nan, nan}, 1e-6);
  kernels::log_softmax(y, x);
  require_close(y, {0, -1e30, std::log(0.5), std::log(0.5), nan, nan}, 1e-6);
}

TEST_CASE("cross_entropy and nll_loss", "[quick][cpu]") {
  for (DType dtype : kFloating)
    for (const Shape& shape : kRows)
      for (bool weighted : {false, true})
        for (double smoothing : {0.0, 0.1}) {
          INFO(shape << " " << dtype << " weighted " << weighted << " smoothing " << smoothing);
          const int64_t rows = shape[0], n = shape[1];
          const TensorOptions sums{.dtype = sum_dtype(dtype)};
          const Tensor x = random_tensor(shape, dtype, 3, -8, 0), scale = random_tensor({rows}, sums.dtype, 4);
          const Tensor u = weighted ? random_tensor({n}, sums.dtype, 5, 0.5, 2) : Tensor();
          std::vector<int64_t> targets(rows);
          for (int64_t row = 0; row < rows; ++row) targets[row] = row == 1 ? -100 : (row * 7 + 3) % n;
          const Tensor t = tensor(targets), loss = empty({rows}, sums), weight = empty({rows}, sums);
          const Tensor lse = empty({rows}, sums), dx = empty(shape, {.dtype = dtype});
          const Values vx = values(x), vs = values(scale), vu = weighted ? values(u) : Values(n, 1.0);

          Values losses(rows), weights(rows), expected_dx(vx.size()), nll(rows), nll_dx(vx.size());
          for (int64_t row = 0; row < rows; ++row) {
            if (targets[row] < 0) continue;
            const double log_sum = log_sum_exp(vx, row, n);
            weights[row] = vu[targets[row]];
            nll[row] = -weights[row] * vx[row * n + targets[row]];
            nll_dx[row * n + targets[row]] = -vs[row] * weights[row];
            // Every term u logp of the sum pulls at its own logit and pushes at all by their probabilities.
            for (int64_t k = 0; k < n; ++k) {
              const double factor = smoothing / n * vu[k] + (k == targets[row] ? (1 - smoothing) * vu[k] : 0);
              losses[row] -= factor * (vx[row * n + k] - log_sum);
              for (int64_t c = 0; c < n; ++c)
                expected_dx[row * n + c] += vs[row] * factor * (std::exp(vx[row * n + c] - log_sum) - (c == k));
            }
          }
          const double tolerance = sum_tolerance(dtype, n);
          kernels::cross_entropy(loss, weight, lse, x, t, u, {.label_smoothing = smoothing});
          require_close(loss, losses, 16 * sum_tolerance(sums.dtype, n));
          require_close(weight, weights, 0);
          kernels::cross_entropy_backward(dx, scale, x, lse, t, u, {.label_smoothing = smoothing});
          require_close(dx, expected_dx, 4 * tolerance);
          kernels::nll_loss(loss, weight, x, t, u, -100);
          require_close(loss, nll, sum_tolerance(sums.dtype, 1));
          require_close(weight, weights, 0);
          kernels::nll_loss_backward(dx, scale, t, u, -100);
          require_close(dx, nll_dx, tolerance);
        }
}

TEST_CASE("a target outside the classes gives NaN", "[quick][cpu]") {
  const Tensor x = random_tensor({3, 4}, DType::Float32, 6), t = tensor<int64_t>({4, -1, 2});
  const Tensor loss = empty({3}), weight = empty({3}), lse = empty({3}), dx = empty({3, 4});
  kernels::cross_entropy(loss, weight, lse, x, t, {}, {});
  for (auto [row, is_nan] : {std::pair(0, true), {1, true}, {2, false}})
    REQUIRE(std::isnan(values(loss)[row]) == is_nan);
  kernels::cross_entropy_backward(dx, ones({3}), x, lse, t, {}, {});
  for (int i = 0; i < 12; ++i) REQUIRE(std::isnan(values(dx)[i]) == (i < 8));
  kernels::nll_loss(loss, weight, x, t, {}, -1);
  REQUIRE(std::isnan(values(loss)[0]));
  REQUIRE(values(loss)[1] == 0);
}

TEST_CASE("layer_norm and its gradients", "[quick][cpu]") {
  for (DType dtype : kFloating)
    for (const Shape& shape : {Shape{3, 10}, {70, 33}, {2, 1000}, {0, 4}})
      for (bool affine : {false, true}) {
        INFO(shape << " " << dtype << " affine " << affine);
        const int64_t rows = shape[0], n = shape[1];
        const TensorOptions sums{.dtype = sum_dtype(dtype)}, like{.dtype = dtype};
        const Tensor x = random_tensor(shape, dtype, 7, 2, 4), dy = random_tensor(shape, dtype, 8);
        const Tensor w = affine ? random_tensor({n}, sums.dtype, 9) : Tensor(),
                     b = affine ? random_tensor({n}, sums.dtype, 10) : Tensor();
        const Tensor y = empty(shape, like), dx = empty(shape, like), mean = empty({rows}, sums),
                     rstd = empty({rows}, sums);
        const Tensor dw = affine ? empty({n}, sums) : Tensor(), db = affine ? empty({n}, sums) : Tensor();
        kernels::layer_norm(y, mean, rstd, x, w, b, 1e-5);
        kernels::layer_norm_backward(dx, dw, db, dy, x, mean, rstd, w);

        const Values vx = values(x), vdy = values(dy), vw = affine ? values(w) : Values(n, 1.0),
                     vb = affine ? values(b) : Values(n);
        Values expected(vx.size()), expected_dx(vx.size()), means(rows), rstds(rows), expected_dw(n), expected_db(n);
        for (int64_t row = 0; row < rows; ++row) {
          double var = 0, sum_g = 0, sum_g_xhat = 0;
          for (int64_t c = 0; c < n; ++c) means[row] += vx[row * n + c] / n;
          for (int64_t c = 0; c < n; ++c) var += std::pow(vx[row * n + c] - means[row], 2) / n;
          rstds[row] = 1 / std::sqrt(var + 1e-5);
          const auto xhat = [&](int64_t c) { return (vx[row * n + c] - means[row]) * rstds[row]; };
          for (int64_t c = 0; c < n; ++c) {
            expected[row * n + c] = xhat(c) * vw[c] + vb[c];
            sum_g += vdy[row * n + c] * vw[c];
            sum_g_xhat += vdy[row * n + c] * vw[c] * xhat(c);
            expected_dw[c] += vdy[row * n + c] * xhat(c);
            expected_db[c] += vdy[row * n + c];
          }
          for (int64_t c = 0; c < n; ++c)
            expected_dx[row * n + c] = rstds[row] * (vdy[row * n + c] * vw[c] - sum_g / n - xhat(c) * sum_g_xhat / n);
        }
        const double tolerance = 16 * sum_tolerance(dtype, 64);
        require_close(mean, means, sum_tolerance(sums.dtype, n));
        require_close(rstd, rstds, 16 * sum_tolerance(sums.dtype, 64));
        require_close(y, expected, tolerance);
        require_close(dx, expected_dx, tolerance);
        if (!affine) continue;
        require_close(dw, expected_dw, tolerance);
        require_close(db, expected_db, tolerance);
      }
}

TEST_CASE("row-wise kernels do not depend on the number of threads", "[quick][threads][cpu]") {
  const Shape shape{3000, 70};
  const Tensor x = random_tensor(shape, DType::Float32, 11), dy = random_tensor(shape, DType::Float32, 12);
  const Tensor w = random_tensor({70}, DType::Float32, 13);
  require_same_on_any_threads([&] {
    const Tensor y = empty(shape), p = empty(shape), dx = empty(shape), mean = empty({3000}), rstd = empty({3000});
    const Tensor dw = empty({70}), db = empty({70});
    kernels::softmax(p, x);
    kernels::layer_norm(y, mean, rstd, x, w, {}, 1e-5);
    kernels::layer_norm_backward(dx, dw, db, dy, x, mean, rstd, w);
    return std::vector<Tensor>{y, p, dx, mean, rstd, dw, db};
  });
}
