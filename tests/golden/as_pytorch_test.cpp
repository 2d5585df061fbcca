// Odd programs that PyTorch accepts or refuses, and what it gives for them (2.15, on the CPU).
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::as_pytorch_test {

namespace {

using Values = std::vector<double>;

Tensor leaf(const std::vector<float>& values) { return Tensor(tensor(values)).set_requires_grad(); }
Values values(const Tensor& x) { return to_vector<double>(x); }

}  // namespace

TEST_CASE("a number divides as a tensor does, rounded once", "[as_pytorch][quick]") {
  std::vector<float> numbers;
  std::vector<float> sevenths;
  std::vector<float> inverses;
  for (int i = 1; i < 3000; ++i) {
    numbers.push_back(static_cast<float>(i) * 0.37f);
    sevenths.push_back(numbers.back() / 7);
    inverses.push_back(1 / numbers.back());
  }
  const Tensor x = leaf(numbers);
  CHECK(to_vector<float>(x / 7) == sevenths);
  CHECK(to_vector<float>(1 / x) == inverses);
  const Tensor wide = to(x.detach(), DType::Float64);
  CHECK(to_vector<float>(wide / 7) == sevenths);
  sum(x / 7).backward();
  CHECK(to_vector<float>(x.grad()) == std::vector<float>(numbers.size(), 1.0f / 7));

  const Tensor special = tensor<float>({1, 0, -1}) / 0;
  CHECK((special.data<float>()[0] == INFINITY && std::isnan(special.data<float>()[1])));
  // 7 need not be a bfloat16.
  CHECK(values(full({1}, 3, {.dtype = DType::BFloat16}) / 7) == Values{0.427734375});
  const Tensor blocked = to_layout(full({1, 3, 2, 2}, 7), Layout::ChannelBlocked) / 7;
  CHECK((blocked.is_channel_blocked() && values(blocked) == Values(12, 1)));
  CHECK(values(arange(3) / 2) == Values{0, 0.5, 1});  // no quotient is cut off without a word
  CHECK(values(arange(3) / arange(2, 5)).at(1) == 1.0f / 3);
  CHECK((arange(3) / arange(2, 5)).dtype() == DType::Float32);
}

TEST_CASE("a tensor without dimensions is reduced along 0 or -1", "[as_pytorch][quick]") {
  for (const int dim : {0, -1}) {
    const Tensor x = Tensor(scalar(3)).set_requires_grad();
    const Tensor results[] = {sum(x, {dim}), mean(x, {dim}, true), max(x, dim).values,
                              min(x, dim, true).values, log_softmax(x, dim)};
    for (const Tensor& y : results) {
      CHECK(y.shape() == Shape{});
      y.backward();
    }
    CHECK(values(x.grad()) == Values{4});  // 1 of each but the last, which is always 0
    CHECK(values(results[3]) == Values{3});
    CHECK(values(softmax(x, dim)) == Values{1});
    CHECK(values(argmax(x, dim)) == Values{0});
    CHECK(std::isnan(var(x, {dim}).item<float>()));
  }
  const char* const one = "dimension 1 is out of range";
  require_error<IndexError>(one, [] { sum(scalar(3), {1}); });
  require_error<IndexError>(one, [] { max(scalar(3), 1); });
  require_error<IndexError>(one, [] { softmax(scalar(3), 1); });
}

TEST_CASE("bools are counted", "[as_pytorch][quick]") {
  const Tensor hits = sum(eq(arange(5), tensor<int64_t>({0, 1, 0, 3, 0})));
  CHECK((hits.dtype() == DType::Int64 && hits.item<int64_t>() == 3));
}

TEST_CASE("where PyTorch promotes, an error says what to convert", "[as_pytorch][quick]") {
  const Tensor whole = arange(3);
  const Tensor flags = whole > 0;
  const Tensor real = ones({3});
  require_error<DTypeError>("mul: the tensor is int64 and the number 0.5, expected a whole number",
                            [&] { whole * 0.5; });
  require_error<DTypeError>("mul: dtypes int64 and float32 differ", [&] { whole* real; });
  require_error<DTypeError>("add: dtypes bool and int64 differ", [&] { flags + whole; });
  require_error<DTypeError>("add: unsupported dtype bool", [&] { flags + flags; });
  require_error<DTypeError>("affine: unsupported dtype bool", [&] { flags * 2; });
  require_error<DTypeError>("the tensor is int64 and the number 0.5", [&] { return whole > 0.5; });
  require_error<DTypeError>("add: the tensor is int64 and the number 0.5", [&] { whole += 0.5; });
  require_error<DTypeError>("div_: dtypes int64 and float32 differ", [&] { whole /= 2; });
  require_error<DTypeError>("mean: unsupported dtype int64", [&] { whole.mean(); });
  CHECK(values(flags.sum()) == Values{2});
  CHECK(values(cumsum(to(full({3}, 100), DType::UInt8), 0)) == Values{100, 200, 300});
}

TEST_CASE("nothing is written where elements share a place", "[as_pytorch][quick]") {
  const Tensor row = tensor<float>({7, 8, 9}, {1, 3});
  const Tensor rows = expand(row, {2, 3});
  const auto refused = [](const char* operation, auto write) {
    require_error<Error>(
        std::string(operation) + ": the destination has shape [2, 3] and strides [0, 1], so that ",
        write);
  };
  refused("copy_", [&] { copy_(rows, tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3})); });
  refused("fill_", [&] { fill_(rows, 1); });  // PyTorch lets this one pass
  refused("uniform_", [&] { uniform_(rows, 0, 1); });
  refused("normal_", [&] { normal_(rows, 0, 1); });
  CHECK(values(row) == Values{7, 8, 9});
  const Tensor mean = expand(zeros({1}), {2});
  const Tensor var = expand(ones({1}), {2});
  require_error<Error>("batch_norm: the destination has shape [2] and strides [0], so that ", [&] {
    batch_norm(zeros({4, 2}), {}, {}, mean, var);
  });
  fill_(expand(row, {1, 3}), 1);  // repeated once: every element has its place
  CHECK(values(row) == Values{1, 1, 1});
}

TEST_CASE("nothing is copied onto another view of itself", "[as_pytorch][quick]") {
  const Tensor x = to(arange(9), DType::Float32);
  const Tensor square = reshape(x, {3, 3});
  const char* const text = "have memory in common";
  require_error<Error>(text, [&] { copy_(square, transpose(square, 0, 1)); });
  require_error<Error>(text, [&] { copy_(slice(x, 0, 1, 9), slice(x, 0, 0, 8)); });
  copy_(square, square.detach());
  copy_(slice(x, 0, 0, 3), slice(x, 0, 6, 9));  // neighbours
  CHECK(values(x) == Values{6, 7, 8, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("a write to what was computed is refused, not left out of the gradient",
          "[as_pytorch][quick]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  require_error<Error>("fill_: the destination of shape [2] was computed from leaves",
                       [&] { fill_(y, 7); });
  require_error<Error>("copy_: the destination of shape [2] was computed from leaves",
                       [&] { copy_(y, zeros({2})); });
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
  const Tensor x = leaf({3, 3});
  const Tensor w = leaf({2, 2});
  const Tensor loss = sum(x * w);
  w.set_requires_grad(false);
  loss.backward();
  CHECK(!w.grad());
  CHECK(values(x.grad()) == Values{2, 2});
}

TEST_CASE("without zero_grad(None) a parameter that no loss reaches still decays",
          "[as_pytorch][quick]") {
  const Tensor used = leaf({1});
  const Tensor unused = leaf({1});
  const Tensor frozen = leaf({1});
  optim::SGD optimizer(std::vector<Tensor>{used, unused, frozen}, {.lr = 0.5, .weight_decay = 0.5});
  frozen.set_requires_grad(false);
  optimizer.zero_grad();
  sum(used * 1).backward();
  optimizer.step();
  CHECK(values(used) == Values{0.25});
  CHECK(values(unused) == Values{0.75});
  CHECK(values(frozen) == Values{1});
}

}  // namespace ringgrad::test::as_pytorch_test
