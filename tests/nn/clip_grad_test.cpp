// Gradient clipping.
#include <cmath>

#include "ringgrad/autograd/arena.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/nn/optim/clip_grad.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::clip_grad_test {

TEST_CASE("clip_grad_norm_ scales all gradients together, and only where it must", "[quick]") {
  const Tensor a = zeros({2}).set_requires_grad();
  const Tensor b = zeros({1}).set_requires_grad();
  SECTION("apart") {}
  SECTION("in an arena") { flatten_parameters({a, b}); }
  a.set_grad(tensor<float>({2, -3}));
  b.set_grad(tensor<float>({6}));
  REQUIRE(optim::clip_grad_norm_({a, b}, 8).item<float>() == 7);
  REQUIRE(to_vector<float>(a.grad()) == std::vector<float>{2, -3});
  REQUIRE(optim::clip_grad_norm_({a, b}, 3.5).item<float>() == 7);
  REQUIRE(std::abs(to_vector<float>(a.grad())[1] + 1.5f) < 1e-5f);
  REQUIRE(std::abs(to_vector<float>(b.grad())[0] - 3) < 1e-5f);
}

// Each rank has its parameters at other addresses. Rounding would show the order in which the parts
// were added.
TEST_CASE("clip_grad_norm_ has the same bits wherever its parameters lie", "[quick]") {
  constexpr int kParts = 9;
  const auto norm_of = [](bool upwards) {
    std::vector<float> memory(16 * kParts);
    std::vector<Tensor> parameters;
    // Each an allocation of its own, as wrappers and dtypes have them.
    for (int i = 0; i < kParts; ++i) {
      const int place = upwards ? i : kParts - 1 - i;
      parameters.push_back(from_blob(memory.data() + 16 * place, {1}).set_requires_grad());
      parameters.back().set_grad(tensor<float>({i == 0 ? 1.0f : 0x1p-12f}));
    }
    return optim::clip_grad_norm_(parameters, 1e9).item<float>();
  };
  CHECK(norm_of(true) == norm_of(false));
}

TEST_CASE("clip_grad_norm_ leaves parameters without a gradient alone", "[quick]") {
  const Tensor a = zeros({1}).set_requires_grad();
  const Tensor b = zeros({2}).set_requires_grad();
  REQUIRE(optim::clip_grad_norm_({a, b}, 1).item<float>() == 0);
  REQUIRE((!a.grad() && !b.grad()));
  b.set_grad(tensor<float>({3, 4}));
  REQUIRE(optim::clip_grad_norm_({a, b}, 10).item<float>() == 5);
  REQUIRE((!a.grad() && to_vector<float>(b.grad()) == std::vector<float>{3, 4}));
}

TEST_CASE("clip_grad_norm_ of mixed dtypes, of NaN, of nothing", "[quick]") {
  const Tensor a = zeros({1}).set_requires_grad();
  const Tensor b = zeros({1}, {.dtype = DType::BFloat16}).set_requires_grad();
  a.set_grad(full({1}, 3));
  b.set_grad(full({1}, 4, {.dtype = DType::BFloat16}));
  const Tensor norm = optim::clip_grad_norm_({a, b}, 2.5);
  REQUIRE(norm.dtype() == DType::Float32);
  REQUIRE(norm.item<float>() == 5);
  REQUIRE(std::abs(to_vector<float>(a.grad())[0] - 1.5f) < 1e-5);
  REQUIRE(std::abs(to_vector<float>(b.grad())[0] - 2.0f) < 0.02);

  fill_(a.grad(), NAN);
  REQUIRE(std::isnan(optim::clip_grad_norm_({a, b}, 1).item<float>()));
  REQUIRE(std::isnan(to_vector<float>(a.grad())[0]));
  REQUIRE(to_vector<float>(b.grad())[0] == 0);
  require_error<Error>("clip_grad_norm_: there are no parameters",
                       [] { optim::clip_grad_norm_({}, 1); });
  require_error<Error>("clip_grad_norm_: max_norm is -1", [&] { optim::clip_grad_norm_({a}, -1); });
  require_error<Error>("clip_grad_value_: the value is -1",
                       [&] { optim::clip_grad_value_({a}, -1); });
  require_error<Error>("clip_grad_norm_: parameter 1 is undefined", [&] {
    optim::clip_grad_norm_({a, {}}, 1);
  });
}

TEST_CASE("a gradient that is not finite leaves no trace in an arena once it is gone", "[quick]") {
  const double bad = GENERATE(NAN, INFINITY);
  const double max_norm = GENERATE(1.0, INFINITY);
  const Tensor a = zeros({2}).set_requires_grad();
  const Tensor b = zeros({1}).set_requires_grad();
  flatten_parameters({a, b});
  fill_(a.grad(), bad);
  optim::clip_grad_norm_({a, b}, max_norm);
  copy_(a.grad(), tensor<float>({3, 0}));
  copy_(b.grad(), tensor<float>({4}));
  REQUIRE(optim::clip_grad_norm_({a, b}, 10).item<float>() == 5);
}

}  // namespace ringgrad::test::clip_grad_test
