// Digits that a naive order of additions would lose.
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::exactness_test {

namespace {

constexpr double kUnit = 0x1p-24;  // the largest relative error of one rounding

}  // namespace

// Equal terms are the worst: every addition rounds in the same direction. 64 are added in float32,
// the rest in double, and the result is rounded once.
TEST_CASE("sums over the batch keep their digits however many rows there are", "[quick]") {
  const int64_t rows = 100'000;
  for (const int64_t columns : {1, 3, 16, 100}) {
    const Tensor x = full({rows, columns}, 0.1);
    const double expected = static_cast<double>(0.1f) * rows;
    for (const float value : to_vector<float>(sum(x, {0})))
      REQUIRE(std::abs(value - expected) <= (64 + 1) * kUnit * expected);
  }
}

// Rows of the same kind with a gap behind each: a row of at most 8 has 7 additions.
TEST_CASE("sums of short rows keep their digits however many rows there are", "[quick]") {
  const int64_t rows = 100'000;
  for (const int64_t columns : {1, 3, 8}) {
    const Tensor x = narrow(full({rows, 9}, 0.1), 1, 0, columns);
    const double expected = static_cast<double>(0.1f) * static_cast<double>(rows * columns);
    REQUIRE(std::abs(sum(x).item<float>() - expected) <= (64 + 8 + 1) * kUnit * expected);
  }
}

TEST_CASE("tanh is rounded once", "[quick]") {
  std::vector<float> x;
  for (int i = -4000; i <= 4000; ++i) x.push_back(static_cast<float>(i) * 0.00237f);
  for (float small = 1; small > 1e-44f; small *= 0.83f) x.push_back(small);
  const std::vector<float> y = to_vector<float>(tanh(tensor(x)));
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::tanh(static_cast<double>(x[i]));
    const double ulp = std::ldexp(1, std::max(std::ilogb(expected), -126) - 23);
    INFO(x[i]);
    REQUIRE(std::abs(y[i] - expected) <= 0.52 * ulp);
  }
}

// Over the batch 1 + 2^-9 + 2^-8 is summed, which is next to 1 + 2^-7; rounded before that sum it
// would be 1.
TEST_CASE("the gradient of a matrix that is used for every batch is rounded once", "[quick]") {
  const auto bf16 = [](const std::vector<float>& values, const Shape& shape) {
    return to(tensor(values, shape), DType::BFloat16);
  };
  const Tensor a = bf16({1}, {1, 1}).set_requires_grad();
  const Tensor b = bf16({1, 0x1p-9f, 0x1p-8f, 0}, {2, 1, 2});
  sum(matmul(a, b)).backward();
  REQUIRE(a.grad().item<float>() == 1 + 0x1p-7f);
}

// Segments of 125 terms, each summed from zero, then their sums in order, whatever the caches of
// this machine are.
TEST_CASE("long matrix products are sums of short ones, bit for bit", "[quick]") {
  manual_seed(1);
  const int64_t k = 2000;
  const int64_t segment = 125;
  const Tensor a = empty({7, k});
  const Tensor b = empty({k, 20});
  normal_(a, 0, 1);
  normal_(b, 0, 1);
  Tensor expected = zeros({7, 20});
  for (int64_t first = 0; first < k; first += segment)
    expected =
        expected + matmul(slice(a, 1, first, first + segment), slice(b, 0, first, first + segment));
  REQUIRE(to_vector<float>(matmul(a, b)) == to_vector<float>(expected));
}

// The tiles' segments have 128 terms. A transposed factor is copied, the others are read where they
// are: the same bits.
TEST_CASE("products of tiles are sums of short ones, bit for bit, however the factors lie",
          "[quick]") {
  manual_seed(1);
  const int64_t m = 70;
  const int64_t n = 301;
  const int64_t k = 300;
  const int64_t segment = 128;
  const Tensor a = randn({m, k});
  const Tensor b = randn({k, n});
  Tensor expected = zeros({m, n});
  for (int64_t first = 0; first < k; first += segment) {
    const int64_t end = std::min(k, first + segment);
    expected = expected + matmul(slice(a, 1, first, end), slice(b, 0, first, end));
  }
  const auto turned = [](const Tensor& x) {
    return transpose(contiguous(transpose(x, 0, 1)), 0, 1);
  };
  for (const Tensor& left : {a, turned(a)})
    for (const Tensor& right : {b, turned(b)})
      REQUIRE(to_vector<float>(matmul(left, right)) == to_vector<float>(expected));
}

TEST_CASE("equal numbers are normalised to zero, however large they are", "[quick]") {
  for (const double value : {10003.7, -1e6 / 3}) {
    for (const float y : to_vector<float>(layer_norm(full({5, 37}, value), {37}))) REQUIRE(y == 0);
    for (const int64_t channels : {3, 16}) {
      const Tensor x = full({6, channels, 9, 9}, value);
      const Tensor mean = zeros({channels});
      const Tensor var = ones({channels});
      for (const float y : to_vector<float>(batch_norm(x, {}, {}, mean, var, {.training = true})))
        REQUIRE(y == 0);
      for (const float running : to_vector<float>(var)) REQUIRE(std::abs(running - 0.9f) < 1e-6f);
    }
  }
}

}  // namespace ringgrad::test::exactness_test
