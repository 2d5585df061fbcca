// Odd programs that PyTorch accepts or refuses, and what it gives for them (2.15, on the CPU).
#include <cmath>

#include "autograd/ops.h"
#include "core/error.h"
#include "core/factory.h"
#include "core/random.h"
#include "nn/linear.h"
#include "tests/catch.h"
#include "tests/test_util.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

using Values = std::vector<double>;

Tensor leaf(const std::vector<float>& values) { return Tensor(tensor(values)).set_requires_grad(); }
Values values(const Tensor& x) { return to_vector<double>(x); }

}  // namespace

TEST_CASE("nothing is written where elements share a place", "[as_pytorch][quick]") {
  const Tensor row = tensor<float>({7, 8, 9}, {1, 3});
  const Tensor rows = expand(row, {2, 3});
  const auto refused = [](const char* operation, auto write) {
    require_error<Error>(std::string(operation) + ": the destination has shape [2, 3] and strides [0, 1], so that ",
                         write);
  };
  refused("copy_", [&] { copy_(rows, tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3})); });
  refused("fill_", [&] { fill_(rows, 1); });  // PyTorch lets this one pass
  refused("uniform_", [&] { uniform_(rows, 0, 1); });
  refused("normal_", [&] { normal_(rows, 0, 1); });
  CHECK(values(row) == Values{7, 8, 9});
  const Tensor mean = expand(zeros({1}), {2}), var = expand(ones({1}), {2});
  require_error<Error>("batch_norm: the destination has shape [2] and strides [0], so that ", [&] {
    batch_norm(zeros({4, 2}), {}, {}, mean, var);
  });
  fill_(expand(row, {1, 3}), 1);  // repeated once: every element has its place
  CHECK(values(row) == Values{1, 1, 1});
}

TEST_CASE("nothing is copied onto another view of itself", "[as_pytorch][quick]") {
  const Tensor x = to(arange(9), DType::Float32), square = reshape(x, {3, 3});
  const char* const text = "have memory in common";
  require_error<Error>(text, [&] { copy_(square, transpose(square, 0, 1)); });
  require_error<Error>(text, [&] { copy_(slice(x, 0, 1, 9), slice(x, 0, 0, 8)); });
  copy_(square, square.detach());
  copy_(slice(x, 0, 0, 3), slice(x, 0, 6, 9));  // neighbours
  CHECK(values(x) == Values{6, 7, 8, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("a write to what was computed is refused, not left out of the gradient", "[as_pytorch][quick]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  require_error<Error>("fill_: the destination of shape [2] was computed from leaves", [&] { fill_(y, 7); });
  require_error<Error>("copy_: the destination of shape [2] was computed from leaves", [&] { copy_(y, zeros({2})); });
  fill_(y.detach(), 7);
  CHECK(values(y) == Values{7, 7});
}

TEST_CASE("a gradient follows a leaf that was converted or moved since", "[as_pytorch][quick]") {
  for (const bool had_gradient : {false, true}) {
    nn::Linear net(2, 1);
    const auto loss = [&] { return sum(net(full({1, 2}, 3))); };
    if (had_gradient) loss().backward();
    const Tensor before = loss();
    net.to(DType::Float64);
    before.backward();
    CHECK(net.weight.grad().dtype() == DType::Float64);
    CHECK(values(net.weight.grad()) == Values(2, had_gradient ? 6 : 3));
  }
}

TEST_CASE("a leaf that was frozen since receives nothing", "[as_pytorch][quick]") {
  const Tensor x = leaf({3, 3}), w = leaf({2, 2});
  const Tensor loss = sum(x * w);
  w.set_requires_grad(false);
  loss.backward();
  CHECK(!w.grad());
  CHECK(values(x.grad()) == Values{2, 2});
}
