// A checker that cannot fail proves nothing: wrong backwards of several kinds must be found, and
// named.
#include "ringgrad/autograd/gradcheck.h"

#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::gradcheck_test {

namespace {

Tensor input(const Shape& shape) {
  Tensor x = empty(shape, {.dtype = DType::Float64});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = 0.5 + 0.25 * static_cast<double>(i);
  return x.set_requires_grad();
}

// x², with a backward that returns `wrong(2 x dy)`.
template <class Wrong>
Tensor square(const Tensor& x, Wrong wrong) {
  return differentiable(
      "square", {x}, (x * x).detach(),
      [x = save(x), wrong](const Tensor& dy) -> Gradients { return {wrong(dy * x.get() * 2)}; });
}

}  // namespace

TEST_CASE("gradcheck passes what is right", "[gradcheck][quick]") {
  const auto f = [](const std::vector<Tensor>& in) { return exp(in[0]) * in[1] / (in[0] + 2); };
  const auto result = gradcheck(f, {input({2, 3}), input({3})});
  CHECK(result);
  CHECK(result.worst < 1e-8);
}

TEST_CASE("gradcheck finds a wrong sign, factor, element, missing gradient and NaN",
          "[gradcheck][quick]") {
  const Tensor x = input({2, 3});
  const auto check = [&](auto wrong) {
    return gradcheck([&](const std::vector<Tensor>& in) { return square(in[0], wrong); }, {x});
  };
  CHECK(check([](const Tensor& g) { return g; }));
  CHECK(!check([](const Tensor& g) { return -g; }));
  CHECK(!check([](const Tensor& g) { return g * 1.00001; }));
  CHECK(!check([](const Tensor&) { return Tensor(); }));
  CHECK(!check([](const Tensor& g) { return g * NAN; }));
  const auto result = check([](const Tensor& g) {
    g.data<double>()[4] += 0.125;
    return g;
  });
  CHECK(!result);
  require_contains(result.message,
                   "gradcheck of square: input 0 of shape [2, 3], element 4: backward gives ");
  CHECK(result.worst > 0.01);
}

TEST_CASE("gradcheck leaves values and gradients as they were", "[gradcheck][quick]") {
  const Tensor x = input({3});
  const Tensor y = input({3});
  y.set_requires_grad(false);
  x.set_grad(ones({3}, {.dtype = DType::Float64}));
  const auto before = to_vector<double>(x);
  CHECK(gradcheck([](const std::vector<Tensor>& in) { return in[0] * in[1]; }, {x, y}));
  CHECK(to_vector<double>(x) == before);
  CHECK(to_vector<double>(x.grad()) == std::vector<double>{1, 1, 1});
  CHECK(!y.grad());

  int calls = 0;
  require_error<Error>("enough", [&] {
    gradcheck(
        [&](const std::vector<Tensor>& in) {
          if (++calls == 3) throw Error("enough");
          return in[0] * in[1];
        },
        {x, y});
  });
  CHECK(to_vector<double>(x) == before);
}

TEST_CASE("gradcheck wants float64 and a graph", "[gradcheck][quick]") {
  const Tensor x = Tensor(ones({2})).set_requires_grad();
  const auto twice = [](const std::vector<Tensor>& in) { return in[0] * 2; };
  require_error<DTypeError>("gradcheck: unsupported dtype float32, expected float64",
                            [&] { gradcheck(twice, {x}); });
  require_error<Error>("gradcheck: the result does not depend on any input that requires grad",
                       [&] { gradcheck(twice, {ones({2}, {.dtype = DType::Float64})}); });
}

}  // namespace ringgrad::test::gradcheck_test
