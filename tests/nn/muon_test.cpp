// Muon against its formula in double precision, with matrices as plain loops; and what whitens
// images.
#include "ringgrad/nn/optim/muon.h"

#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/nn/init.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::muon_test {

namespace {

struct Matrix {
  int64_t rows;
  int64_t columns;
  std::vector<double> values;
  double operator()(int64_t r, int64_t c) const { return values[r * columns + c]; }
};

template <class At>
Matrix matrix(int64_t rows, int64_t columns, At at) {
  Matrix m{rows, columns, {}};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) m.values.push_back(at(r, c));
  return m;
}
Matrix product(const Matrix& a, const Matrix& b) {
  return matrix(a.rows, b.columns, [&](int64_t r, int64_t c) {
    double sum = 0;
    for (int64_t k = 0; k < a.columns; ++k) sum += a(r, k) * b(k, c);
    return sum;
  });
}
Matrix turned(const Matrix& a) {
  return matrix(a.columns, a.rows, [&](int64_t r, int64_t c) { return a(c, r); });
}

// Jordan et al. 2024, for any shape: X / |X|, then X ← a X + b X Xᵀ X + c (X Xᵀ)² X.
Matrix reference_orthogonalized(Matrix x, int steps) {
  double squares = 0;
  for (const double v : x.values) squares += v * v;
  for (double& v : x.values) v /= std::sqrt(squares) + 1e-7;
  for (int step = 0; step < steps; ++step) {
    const Matrix cubed = product(product(x, turned(x)), x);
    const Matrix fifth = product(product(x, turned(x)), cubed);
    for (size_t i = 0; i < x.values.size(); ++i)
      x.values[i] = 3.4445 * x.values[i] - 4.775 * cubed.values[i] + 2.0315 * fifth.values[i];
  }
  return x;
}

Matrix as_matrix(const Tensor& x) {
  return {x.size(0), x.numel() / x.size(0), to_vector<double>(x)};
}

}  // namespace

TEST_CASE("orthogonalized: all singular values come near 1, and zero stays zero", "[quick]") {
  manual_seed(3);
  for (const Shape& shape : {Shape{6, 20}, Shape{20, 6}, Shape{8, 8}, Shape{1, 5}}) {
    const Tensor x = randn(shape);
    const Tensor y = optim::orthogonalized(x, 5);
    const Matrix want = reference_orthogonalized(as_matrix(x), 5);
    for (size_t i = 0; i < want.values.size(); ++i)
      CHECK(std::abs(to_vector<double>(y)[i] - want.values[i]) < 2e-5);
  }
  const Tensor square = optim::orthogonalized(randn({4, 64}));
  // Eigenvalues are squares of singular values.
  const Tensor gram = matmul(square, transpose(square, 0, 1));
  for (int64_t i = 0; i < 4; ++i)
    CHECK(std::abs(gram.narrow(0, i, 1).narrow(1, i, 1).item<double>() - 1) < 0.5);
  CHECK(norm(optim::orthogonalized(zeros({3, 4}))).item<double>() == 0);
  REQUIRE_THROWS_AS(optim::orthogonalized(zeros({3})), ShapeError);
}

TEST_CASE("Muon: four steps of its formula, for a matrix and for filters", "[quick]") {
  for (const bool nesterov : {true, false}) {
    manual_seed(5);
    const optim::MuonOptions o{
        .lr = 0.02, .weight_decay = 0.1, .momentum = 0.9, .nesterov = nesterov, .steps = 3};
    const std::vector<Tensor> weights = {randn({7, 4}).set_requires_grad(),
                                         randn({3, 2, 3, 3}).set_requires_grad()};
    std::vector<Matrix> want = {as_matrix(weights[0]), as_matrix(weights[1])};
    std::vector<Matrix> momentum = want;
    for (Matrix& m : momentum) std::fill(m.values.begin(), m.values.end(), 0.0);
    optim::Muon muon(weights, o);
    for (int step = 0; step < 4; ++step) {
      muon.zero_grad();
      for (size_t w = 0; w < weights.size(); ++w) {
        normal_(weights[w].grad(), 0, 1);
        const Matrix g = as_matrix(weights[w].grad());
        Matrix direction = g;
        for (size_t i = 0; i < g.values.size(); ++i) {
          double& b = momentum[w].values[i];
          b = 0.9 * b + 0.1 * g.values[i];
          direction.values[i] = nesterov ? 0.1 * g.values[i] + 0.9 * b : b;
        }
        const Matrix step_of = reference_orthogonalized(direction, 3);
        const double scale = std::sqrt(std::max(1.0, static_cast<double>(g.rows) / g.columns));
        for (size_t i = 0; i < g.values.size(); ++i)
          want[w].values[i] += -0.02 * 0.1 * want[w].values[i] - 0.02 * scale * step_of.values[i];
      }
      muon.step();
      for (size_t w = 0; w < weights.size(); ++w)
        for (size_t i = 0; i < want[w].values.size(); ++i)
          REQUIRE(std::abs(to_vector<double>(weights[w])[i] - want[w].values[i]) < 2e-5);
    }
    // A step whose gradients overflowed changes nothing.
    const Tensor before = weights[0].detach().clone();
    const Tensor kept = muon.state_dict()[2].second.clone();
    muon.step(full({}, NAN, {.dtype = DType::Float64}));
    CHECK(equal(weights[0].detach(), before));
    CHECK(equal(muon.state_dict()[2].second, kept));
  }
}

TEST_CASE("Muon: what it cannot train is an error", "[quick]") {
  require_error<ShapeError>("has shape [3], expected a matrix or filters", [] {
    optim::Muon(std::vector<Tensor>{zeros({3}).set_requires_grad()});
  });
  require_error<DTypeError>("expected float32", [] {
    optim::Muon(std::vector<Tensor>{zeros({3, 3}, {.dtype = DType::Float64}).set_requires_grad()});
  });
}

TEST_CASE("whitening_: the filters' answers have no correlation and variance 1", "[quick]") {
  manual_seed(6);
  const Tensor noise = randn({20, 3, 9, 9});
  // Channels that are correlated, and a mean.
  const Tensor images = noise + 0.5 * noise.narrow(1, 0, 1) + 0.3;
  const Tensor filters = empty({24, 3, 2, 2});
  nn::init::whitening_(filters, images, 0);
  const Tensor answers = conv2d(images, filters, Tensor(), {});  // [20, 24, 8, 8]
  const Tensor rows = contiguous(transpose(answers, 0, 1)).view({24, 20 * 64}).narrow(0, 0, 12);
  const Tensor covariance = matmul(rows, transpose(rows, 0, 1)) / (20.0 * 64);
  CHECK(norm(covariance - eye(12)).item<double>() < 1e-3);
  CHECK(equal(filters.narrow(0, 0, 12), neg(filters.narrow(0, 12, 12))));
  require_error<ShapeError>("expected twice as many filters as weights, 24", [&] {
    nn::init::whitening_(empty({12, 3, 2, 2}), images);
  });
  require_error<ShapeError>("expected images [N, C, H, W]", [&] {
    nn::init::whitening_(filters, zeros({2, 1, 9, 9}));
  });
}

TEST_CASE("dirac_: a convolution that changes nothing", "[quick]") {
  manual_seed(7);
  const Tensor x = randn({2, 3, 5, 5});
  const Tensor weight = randn({3, 3, 3, 3});
  nn::init::dirac_(weight);
  CHECK(equal(conv2d(x, weight, Tensor(), {.padding = 1}), x));
  const Tensor wide = randn({4, 2, 1, 3, 5});
  nn::init::dirac_(wide);
  CHECK(sum(wide).item<double>() == 2);
  REQUIRE_THROWS_AS(nn::init::dirac_(zeros({3, 3})), ShapeError);
}

}  // namespace ringgrad::test::muon_test
