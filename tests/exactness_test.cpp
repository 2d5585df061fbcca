// Digits that a naive order of additions would lose.
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

using namespace ringgrad;

namespace {

constexpr double kUnit = 0x1p-24;  // the largest relative error of one rounding

}  // namespace

// Equal terms are the worst: every addition rounds in the same direction. 64 are added in float32, the rest in double,
// and the result is rounded once.
TEST_CASE("sums over the batch keep their digits however many rows there are", "[quick]") {
  const int64_t rows = 100'000;
  for (const int64_t columns : {1, 3, 16, 100}) {
    const Tensor x = full({rows, columns}, 0.1);
    const double expected = static_cast<double>(0.1f) * rows;
    for (const float value : to_vector<float>(sum(x, {0})))
      REQUIRE(std::abs(value - expected) <= (64 + 1) * kUnit * expected);
  }
}

// Segments of 125 terms, each summed from zero, then their sums in order, whatever the caches of this machine are.
TEST_CASE("long matrix products are sums of short ones, bit for bit", "[quick]") {
  manual_seed(1);
  const int64_t k = 2000, segment = 125;
  const Tensor a = empty({7, k}), b = empty({k, 20});
  normal_(a, 0, 1);
  normal_(b, 0, 1);
  Tensor expected = zeros({7, 20});
  for (int64_t first = 0; first < k; first += segment)
    expected = expected + matmul(slice(a, 1, first, first + segment), slice(b, 0, first, first + segment));
  REQUIRE(to_vector<float>(matmul(a, b)) == to_vector<float>(expected));
}

TEST_CASE("equal numbers are normalised to zero, however large they are", "[quick]") {
  for (const double value : {10003.7, -1e6 / 3}) {
    for (const float y : to_vector<float>(layer_norm(full({5, 37}, value), {37}))) REQUIRE(y == 0);
    for (const int64_t channels : {3, 16}) {
      const Tensor x = full({6, channels, 9, 9}, value);
      const Tensor mean = zeros({channels}), var = ones({channels});
      for (const float y : to_vector<float>(batch_norm(x, {}, {}, mean, var, {.training = true}))) REQUIRE(y == 0);
      for (const float running : to_vector<float>(var)) REQUIRE(std::abs(running - 0.9f) < 1e-6f);
    }
  }
}
