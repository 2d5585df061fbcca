// PowerSGD against the paper's formulas, done here in float64 with loops; and a network that trains with it.
#include "ringgrad/distributed/powersgd_hook.h"

#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/ddp_ranks.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

using Matrix = std::vector<std::vector<double>>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < b.size(); ++k)
      for (size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}

Matrix transposed(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}

// Onto what columns span, by the normal equations: no orthogonal basis is needed for it. Gauss and Jordan.
Matrix projected(const Matrix& columns, const Matrix& x) {
  Matrix gram = product(transposed(columns), columns), right = product(transposed(columns), x);
  for (size_t i = 0; i < gram.size(); ++i)
    for (size_t k = 0; k < gram.size(); ++k) {
      const double factor = k == i ? 1 - 1 / gram[i][i] : gram[k][i] / gram[i][i];
      for (size_t j = 0; j < gram.size(); ++j) gram[k][j] -= factor * gram[i][j];
      for (size_t j = 0; j < right[0].size(); ++j) right[k][j] -= factor * right[i][j];
    }
  return product(columns, right);
}

Matrix mean(const std::vector<Matrix>& all) {
  Matrix sum = all[0];
  for (size_t i = 0; i < sum.size(); ++i)
    for (size_t j = 0; j < sum[0].size(); ++j) {
      for (size_t r = 1; r < all.size(); ++r) sum[i][j] += all[r][i][j];
      sum[i][j] /= static_cast<double>(all.size());
    }
  return sum;
}

double gradient(int rank, int step, int64_t i) {
  return uniform_from(philox(static_cast<uint64_t>(rank * 100 + step), static_cast<uint64_t>(i)).word[0]) - 0.5;
}

}  // namespace

// What is compared does not depend on the basis of the span that a hook chooses: P Qᵀ is the projection of the mean M
// onto the span of the mean M Q, and the next Q has the span of its transpose.
TEST_CASE("PowerSGD is subspace iteration with error feedback", "[powersgd][quick][threads]") {
  constexpr int kRanks = 3, kSteps = 4, kColumns = 2;
  constexpr int64_t kCount = 150, kSide = 13;  // 19 zeros
  std::vector<std::vector<std::vector<double>>> results(kRanks, std::vector<std::vector<double>>(kSteps));
  run_ddp_ranks(kRanks, [&](ProcessGroup& group) {
    const CommHook hook = powersgd_hook(kColumns);
    Tensor scratch;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<double> values;
      for (int64_t i = 0; i < kCount; ++i) values.push_back(gradient(group.rank(), step, i));
      const Tensor flat = tensor(values);
      hook({group, flat, {}, 0, true, {}, scratch}).wait();
      results[group.rank()][step] = to_vector<double>(flat);
    }
  });

  std::mt19937 random(1);  // where the hook begins
  Matrix q(kSide, std::vector<double>(kColumns));
  for (auto& row : q)
    for (double& value : row) value = static_cast<double>(random()) / 0x1p31 - 1;
  std::vector<Matrix> m(kRanks, Matrix(kSide, std::vector<double>(kSide)));
  for (int step = 0; step < kSteps; ++step) {
    for (int r = 0; r < kRanks; ++r)
      for (int64_t i = 0; i < kCount; ++i) m[r][i / kSide][i % kSide] += gradient(r, step, i);
    const Matrix all = mean(m), p = product(all, q), low = projected(p, all);
    q = product(transposed(all), p);
    std::vector<double> expected;
    for (int64_t i = 0; i < kCount; ++i) expected.push_back(low[i / kSide][i % kSide]);
    for (int r = 0; r < kRanks; ++r) {
      CAPTURE(step, r);
      REQUIRE(relative_difference(results[r][step], expected) < 1e-10);
      REQUIRE(results[r][step] == results[0][step]);
      for (int64_t i = 0; i < kCount; ++i) m[r][i / kSide][i % kSide] -= expected[i];
    }
  }
}

TEST_CASE("PowerSGD leaves plain what is small, and forgets what is not finite", "[powersgd][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const CommHook hook = powersgd_hook(1);
    const auto averaged = [&](Tensor& scratch, int64_t n, double value) {
      const Tensor flat = full({n}, value, {.dtype = DType::Float32});
      hook({group, flat, {}, 0, true, {}, scratch}).wait();
      return to_vector<float>(flat)[0];
    };
    Tensor small, large;
    must(averaged(small, 9, group.rank()) == 0.5 && !small, "9 elements travel as they are");
    must(averaged(large, 100, 0) == 0, "zeros");
    must(std::isnan(averaged(large, 100, group.rank() == 1 ? NAN : 1)), "NaN is told to all");
    for (int step = 0; step < 3; ++step)
      must(std::abs(averaged(large, 100, 1 + group.rank()) - 1.5f) < 1e-5f, "a matrix of one direction is exact");
  });
  REQUIRE_THROWS_AS(powersgd_hook(0), Error);
}

TEST_CASE("a network trains with PowerSGD, on all ranks alike", "[powersgd][quick][threads]") {
  const auto loss_after = [](const CommHook& hook) {
    std::vector<double> losses(2);
    run_ddp_ranks(2, [&](ProcessGroup& group) {
      const auto net = make_net<Mlp>(3, DType::Float32);
      DistributedDataParallel ddp(*net, group, {.comm_hook = hook});
      optim::SGD optimizer(ddp.parameters(), {.lr = 0.2});
      const auto [x, target] = samples({6}, 3, DType::Float32, 0, 32, group.rank(), 2);
      for (int step = 0; step < 60; ++step) {
        optimizer.zero_grad();
        const Tensor loss = cross_entropy(ddp(x), target);
        loss.backward();
        optimizer.step();
        losses[group.rank()] = loss.item<float>();
      }
      ddp.check_identical();
    });
    return losses[0] + losses[1];
  };
  const double plain = loss_after({}), low_rank = loss_after(powersgd_hook(2));
  CAPTURE(plain, low_rank);
  const double guessing = 2 * std::log(3.0);
  REQUIRE(guessing - low_rank > 0.7 * (guessing - plain));
  REQUIRE(low_rank != plain);  // it did something
}
