// Tensor code as a PyTorch user writes it: methods, indices, conditions, writes in place.
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

#include <sched.h>
#include <sys/select.h>
#include <cmath>
#include <functional>

namespace ringgrad::test::tensor_methods_test {

namespace {

using Values = std::vector<double>;
Values values(const Tensor& x) { return to_vector<double>(x); }
Tensor counted(const Shape& shape) {
  return reshape(arange(0.0, static_cast<double>(shape.numel())), shape);
}

}  // namespace

TEST_CASE("a method is the function of its name, and is tracked as that is", "[quick]") {
  const Tensor x = counted({2, 3}).requires_grad_();
  const Tensor loss = x.square().sum({1}).mean() + x.view({3, 2}).t().select(0, 1).max();
  CHECK(loss.item<double>() == (0 + 1 + 4 + 9 + 16 + 25) / 2.0 + 5);
  CHECK(loss.grad_fn() != nullptr);
  CHECK(x.grad_fn() == nullptr);
  loss.backward();
  CHECK(values(x.grad()) == Values{0, 1, 2, 3, 4, 6});
  CHECK(x.detach().to(DType::Int64).dtype() == DType::Int64);
  CHECK(x.sizes() == Shape{2, 3});
  const auto [largest, places] = x.max(1);
  CHECK(values(largest) == Values{2, 5});
  CHECK(values(places) == Values{2, 2});
}

TEST_CASE("names that the system has, too, are ours for tensors", "[quick]") {
  const Tensor x = counted({2, 3});
  CHECK(values(select(x, 0, 1)) == Values{3, 4, 5});
  const Tensor copy = clone(x);
  copy.fill_(7);
  CHECK(values(x) == Values{0, 1, 2, 3, 4, 5});
}

TEST_CASE("x[i] and x.index() see the same elements, and what is assigned to them lands there",
          "[quick]") {
  const Tensor x = counted({2, 3});
  CHECK(values(x[1]) == Values{3, 4, 5});
  CHECK(x[-1][0].item<double>() == 3);
  CHECK(values(x.index({Slice(), 1})) == Values{1, 4});
  CHECK(values(x.index({Ellipsis, Slice(None, None, 2)})) == Values{0, 2, 3, 5});
  CHECK(x.index({None, 0}).shape() == Shape{1, 3});
  CHECK(values(x.index({Slice(), tensor<int64_t>({2, 0})})) == Values{2, 0, 5, 3});
  CHECK(values(x.index({x > 2.5})) == Values{3, 4, 5});
  x[0] = tensor<float>({7, 8, 9});
  x.index({Slice(), 2}) = 0;
  x[1][0] += 10;
  CHECK(values(x) == Values{7, 8, 0, 13, 4, 0});
  require_error<Error>("operator=: the value goes to a copy of shape [4] that nobody sees",
                       [&] { x.index({x > 3}) = 0; });
  require_error<IndexError>("select: place 2 of dimension 0 of shape [2, 3], expected -2 to 1",
                            [&] { x[2]; });
  require_error<IndexError>("index: 3 dimensions are named, shape [2, 3] has 2", [&] {
    x.index({0, 0, 0});
  });
}

TEST_CASE("places along dimensions that are apart come first, and those beside each other stay",
          "[quick]") {
  const Tensor x = counted({2, 3, 2, 3});
  const Tensor rows = tensor<int64_t>({2, 0});
  const Tensor columns = tensor<int64_t>({-1, 1});
  const auto at = [](int64_t a, int64_t b, int64_t c, int64_t d) {
    return static_cast<double>(((a * 3 + b) * 2 + c) * 3 + d);
  };
  const Tensor apart = x.index({Slice(), rows, Slice(), columns});          // [place, a, c]
  const Tensor beside = x.index({Slice(), rows, tensor<int64_t>({1, 0})});  // [a, place, d]
  REQUIRE(apart.shape() == Shape{2, 2, 2});
  REQUIRE(beside.shape() == Shape{2, 2, 3});
  const int64_t row[] = {2, 0};
  const int64_t column[] = {2, 1};
  for (int64_t a = 0; a < 2; ++a)
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t c = 0; c < 2; ++c)
        CHECK(apart[i][a][c].item<double>() == at(a, row[i], c, column[i]));
      for (int64_t d = 0; d < 3; ++d)
        CHECK(beside[a][i][d].item<double>() == at(a, row[i], 1 - i, d));
    }
  require_error<IndexError>("and at most one Ellipsis", [&] { x.index({Ellipsis, Ellipsis}); });
  require_error<IndexError>("index: 5 dimensions are named", [&] { x.index({0, 0, 0, 0, 0}); });
}

TEST_CASE("x.index_put_() writes where x.index() reads", "[quick]") {
  const Tensor x = counted({2, 3});
  x.index_put_({x > 3.5}, -1);
  CHECK(values(x) == Values{0, 1, 2, 3, -1, -1});
  x.index_put_({Slice(), 0}, tensor<float>({7, 8}));
  CHECK(values(x) == Values{7, 1, 2, 8, -1, -1});
  const Tensor rows = tensor<int64_t>({0, 1, 0, -1});
  const Tensor columns = tensor<int64_t>({1, 2, 1, -3});
  // The last one of two stays, sign and all.
  x.index_put_({rows, columns}, tensor<float>({10, 20, -0.0f, 40}));
  CHECK(values(x) == Values{7, 0, 2, 40, -1, 20});
  CHECK(std::signbit(x[0][1].item<float>()));
  x.index_put_({rows, columns}, ones({4}), true);
  CHECK(values(x) == Values{7, 2, 2, 41, -1, 21});
  x.index_put_({zeros({0}, {.dtype = DType::Int64})}, 5);
  x.index_put_({x < -10}, 5);
  CHECK(values(x) == Values{7, 2, 2, 41, -1, 21});
  const Tensor flags = x > 5;
  flags.index_put_({1}, 1);
  CHECK(values(flags) == Values{1, 0, 0, 1, 1, 1});

  const Tensor w = ones({2}).requires_grad_();
  const Tensor filled = zeros({3});
  filled.index_put_({tensor<int64_t>({2, 0})}, w * 2);
  (filled * counted({3})).sum().backward();
  CHECK(values(w.grad()) == Values{4, 0});

  require_error<IndexError>("index: a tensor of places has elements from 0 to 2, expected -2 to 1",
                            [&] {
                              x.index_put_({tensor<int64_t>({0, 2}), 0}, 1);
                            });
  require_error<IndexError>("elements from -3 to 0, expected -2 to 1", [&] {
    x.index({tensor<int64_t>({0, -3}), tensor<int64_t>({0, 0})});
  });
  require_error<ShapeError>("expand: ", [&] { x.index_put_({0}, ones({2})); });
  require_error<DTypeError>("index_put: dtypes float32 and float64 differ",
                            [&] { x.index_put_({0}, ones({3}, {.dtype = DType::Float64})); });
  require_error<DTypeError>("index: a tensor of places has dtype float32, expected int64, or bool",
                            [&] { x.index({ones({2})}); });
  require_error<ShapeError>(
      "index: the mask has shape [3] for dimension 0 and those after it of the tensor [2, 3]",
      [&] { x.index({ones({3}) > 0}); });
  require_error<ShapeError>("index: shapes [2] and [3] cannot be broadcast", [&] {
    x.index({tensor<int64_t>({0, 1}), tensor<int64_t>({0, 1, 2})});
  });
}

TEST_CASE("clamp_ and masked_fill_ write in place", "[quick]") {
  const Tensor x = counted({2, 3});
  const Tensor column = x.select(1, 2);
  x.clamp_(1, 4);
  CHECK(values(x) == Values{1, 1, 2, 3, 4, 4});
  column.masked_fill_(column > 3, -1);
  CHECK(values(x) == Values{1, 1, 2, 3, 4, -1});
  const Tensor w = counted({3}).requires_grad_();
  const Tensor y = w * 2;
  y.clamp_(1, 3).masked_fill_(w == 0, 5);
  CHECK(values(y) == Values{5, 2, 3});
  y.sum().backward();
  CHECK(values(w.grad()) == Values{0, 2, 0});
  require_error<Error>("clamp_: the tensor of shape [3] is a leaf that requires a gradient",
                       [&] { w.clamp_(0, 1); });
}

TEST_CASE("a comparison is a tensor, and no condition", "[quick]") {
  const Tensor a = tensor<float>({1, 2, 3});
  const Tensor b = tensor<float>({1, 5, 3});
  STATIC_REQUIRE(!std::is_constructible_v<bool, Mask>);
  CHECK(values(a == b) == Values{1, 0, 1});
  CHECK((a <= b).all().item<bool>());
  CHECK(!(a == b).all().item<bool>());
  CHECK(values(((a < b) | (a > 2)) & ~(a == 3)) == Values{0, 1, 0});
  CHECK(equal(a, clone(a)));
  CHECK(!equal(a, b));
  require_error<DTypeError>("the tensor is int64 and the number 0.5",
                            [] { return arange(3) > 0.5; });
}

TEST_CASE("a write in place reaches every handle and every view", "[quick]") {
  const Tensor x = counted({4});
  const Tensor same = x;
  const Tensor part = x.slice(0, 2, 4);
  x += 1;
  x *= x;
  part -= tensor<float>({100});
  CHECK(values(same) == Values{1, 4, -91, -84});
  x.copy_(tensor<double>({2}));
  CHECK(values(part) == Values{2, 2});
  CHECK(values(x.zero_().add_(ones({4}), 3)) == Values{3, 3, 3, 3});
  require_error<ShapeError>("add_: the tensor has shape [4], the result [2, 4]", [&] {
    x += ones({2, 4});
  });
  require_error<DTypeError>("mul: dtypes float32 and float64 differ",
                            [&] { x *= ones({4}, {.dtype = DType::Float64}); });
}

TEST_CASE("a sum that grows in place has the gradient of what was added", "[quick]") {
  const Tensor w = tensor<float>({2, 3}).requires_grad_();
  const Tensor total = zeros({});
  for (int i = 1; i <= 3; ++i) total += (w * i).sum();
  total *= total;
  total.backward();
  CHECK(total.item<double>() == 900);
  CHECK(values(w.grad()) == Values{360, 360});
}

TEST_CASE("a write in place that would make a gradient wrong is refused", "[quick]") {
  const Tensor w = tensor<float>({2, 3}).requires_grad_();
  require_error<Error>("sub_: the tensor of shape [2] is a leaf that requires a gradient",
                       [&] { w -= 0.5 * w; });
  {
    NoGradGuard no_grad;  // a step of gradient descent
    w -= 0.5 * w;
  }
  CHECK(values(w) == Values{1, 1.5});
  const Tensor rows = zeros({2, 2});
  require_error<Error>("copy_: the elements of the tensor of shape [2] are seen by others, too",
                       [&] { rows[0] = w; });
  const Tensor saved = exp(w);  // which its backward needs
  require_error<Error>("add_: the elements of the tensor of shape [2] are seen by others, too",
                       [&] { saved += w; });
}

TEST_CASE("a row of a step: parts, sorted, and random places", "[quick]") {
  const Tensor x = tensor<float>({3, 1, 2});
  CHECK(values(x.sort().values) == Values{1, 2, 3});
  CHECK(values(x.topk(2).indices) == Values{0, 2});
  CHECK(x.argmin().item<int64_t>() == 1);
  CHECK(x.split(2)[1].item<float>() == 2);
  manual_seed(3);
  CHECK(values(randperm(100).sort().values) == values(arange(100)));
  CHECK(values(randperm(100)) != values(arange(100)));
  const Tensor drawn = randint(-3, 5, {1000});
  CHECK(drawn.dtype() == DType::Int64);
  CHECK(drawn.min().item<int64_t>() == -3);
  CHECK(drawn.max().item<int64_t>() == 4);
  require_error<Error>("randint: the bounds are 3 and 3", [] { randint(3, 3, {1}); });
}

TEST_CASE("multinomial draws each place with its weight, without replacement none twice",
          "[quick]") {
  manual_seed(5);
  const Tensor weights = tensor<float>({0, 1, 3, 0}, {1, 4});
  const Tensor drawn = multinomial(weights, 4000, true);
  CHECK(drawn.shape() == Shape{1, 4000});
  CHECK(sum((drawn == 1) | (drawn == 2)).item<int64_t>() == 4000);
  CHECK(std::abs(sum(drawn == 1).item<double>() - 1000) < 150);  // five standard deviations
  int first = 0;
  for (int i = 0; i < 400; ++i) {
    const Tensor both = multinomial(weights[0], 2);
    CHECK(values(both.sort().values) == Values{1, 2});
    first += both[0].item<int64_t>() == 1;
  }
  CHECK(std::abs(first - 100) < 50);
  require_error<Error>("multinomial: a row has a weight that is negative",
                       [&] { multinomial(weights, 3); });
}

TEST_CASE("factories count as PyTorch's do", "[quick]") {
  CHECK(values(arange(2, 7, 2)) == Values{2, 4, 6});
  CHECK(arange(2, 7).dtype() == DType::Int64);
  CHECK(values(arange(0.0, 1.0, 0.25)) == Values{0, 0.25, 0.5, 0.75});
  CHECK(values(arange(3, 0, -2)) == Values{3, 1});
  CHECK(arange(3, 3).numel() == 0);
  require_error<Error>("arange: from 0 to 3 in steps of -1", [] { arange(0, 3, -1); });
  CHECK(values(linspace(0, 1, 5)) == Values{0, 0.25, 0.5, 0.75, 1});
  CHECK(values(linspace(2, 9, 1)) == Values{2});
  CHECK(values(eye(2, 3)) == Values{1, 0, 0, 0, 1, 0});
  CHECK(values(full_like(arange(3), 4)) == Values{4, 4, 4});
  CHECK(rand_like(zeros({3, 2})).shape() == Shape{3, 2});
  std::vector<float> own = {1, 2, 3, 4};
  bool released = false;
  {
    const Tensor seen = from_blob(own.data(), {2, 2}, DType::Float32, [&] { released = true; });
    own[3] = 7;
    CHECK(seen[1][1].item<float>() == 7);
  }
  CHECK(released);
}

TEST_CASE("factories refuse what they cannot make", "[quick]") {
  const double none = std::nan("");
  float number = 0;
  const auto refused = [](const std::string& text, const std::function<void()>& f) {
    require_error<Error>(text, f);
  };
  const auto misfit = [](const std::string& text, const std::function<void()>& f) {
    require_error<ShapeError>(text, f);
  };
  refused("arange: from 0 to 3 in steps of 0,", [] { arange(0, 3, 0); });
  refused("arange: from 0 to 1 in steps of 0,", [] { arange(0.0, 1.0, 0.0); });
  refused("in steps of -0.5,", [] { arange(0.0, 1.0, -0.5); });
  refused("expected finite numbers", [] { arange(0.0, INFINITY, 1.0); });
  refused("expected finite numbers", [&] { arange(0.0, none, 1.0); });
  misfit("numbers do not fit into memory", [] { arange(0.0, 1.0, 1e-20); });
  misfit("linspace: -1 numbers, expected at least 0", [] { linspace(0, 1, -1); });
  misfit("randperm: -1 numbers, expected at least 0", [] { randperm(-1); });
  refused("from_blob: the address is null, expected 6 elements", [] {
    from_blob(nullptr, {2, 3}, DType::Float32);
  });
  misfit("from_blob: shape [-1] has a negative size",
         [&] { from_blob(&number, {-1}, DType::Float32); });
  misfit("from_blob: shape [4294967296, 4294967296] has too many elements", [] {
    from_blob(nullptr, {int64_t{1} << 32, int64_t{1} << 32}, DType::Float32);
  });
  refused("from_blob: there is no release function",
          [&] { from_blob(&number, {1}, DType::Float32, std::function<void()>()); });
  misfit("multinomial: the weights have shape [1, 1, 2]", [] {
    multinomial(ones({1, 1, 2}), 1, true);
  });
  misfit("multinomial: the weights have shape []", [] { multinomial(ones({}), 1, true); });
  refused("multinomial: 0 draws from 2 classes", [] { multinomial(ones({2}), 0, true); });
  refused("multinomial: 3 draws from 2 classes", [] { multinomial(ones({2}), 3); });
  for (const double wrong : {-1.0, HUGE_VAL, none})
    refused("multinomial: a row has a weight that is negative, infinite or NaN", [&] {
      multinomial(tensor<double>({1, wrong, 2}), 1, true);
    });
  refused("or fewer above 0 than the draws take, 1", [] { multinomial(zeros({3}), 1, true); });

  CHECK(from_blob(nullptr, {0, 3}, DType::Float32).numel() == 0);
  CHECK(eye(0, 3).shape() == Shape{0, 3});
  CHECK(values(arange(0, 1.0, 0.5)) == Values{0, 0.5});
  CHECK(values(arange(0.0, 1, 0.5)) == Values{0, 0.5});
  CHECK(values(arange(0, 2, 0.5)) == Values{0, 0.5, 1, 1.5});
}

TEST_CASE("randint refuses a dtype with gaps among its numbers", "[quick]") {
  const std::pair<DType, int64_t> rows[] = {{DType::BFloat16, int64_t{1} << 8},
                                            {DType::Float16, int64_t{1} << 11},
                                            {DType::Float32, int64_t{1} << 24},
                                            {DType::Float64, int64_t{1} << 53},
                                            {DType::UInt8, 255}};
  for (const auto& [dtype, most] : rows) {
    CHECK(randint(most, most + 1, {1}, {.dtype = dtype}).item<double>() ==
          static_cast<double>(most));
    require_error<DTypeError>("cannot hold all numbers from 0 to " + std::to_string(most + 1),
                              [&] { randint(0, most + 2, {1}, {.dtype = dtype}); });
    const int64_t least = dtype == DType::UInt8 ? 0 : -most;
    CHECK(randint(least, least + 1, {1}, {.dtype = dtype}).item<double>() ==
          static_cast<double>(least));
    require_error<DTypeError>("cannot hold all numbers from " + std::to_string(least - 1),
                              [&] { randint(least - 1, 1, {1}, {.dtype = dtype}); });
  }
}

TEST_CASE("methods that take another tensor, dimensions or a limit", "[quick]") {
  const Tensor x = tensor<float>({6, -1, 4, 2}, {2, 2});
  const Tensor y = tensor<float>({2, 4, -2, 1}, {2, 2});
  CHECK(values(x.add(y)) == Values{8, 3, 2, 3});
  CHECK(values(x.sub(y)) == Values{4, -5, 6, 1});
  CHECK(values(x.mul(y)) == Values{12, -4, -8, 2});
  CHECK(values(x.div(y)) == Values{3, -0.25f, -2, 2});
  CHECK(values(x.matmul(y)) == Values{14, 23, 4, 18});
  CHECK(values(x.clamp_max(3)) == Values{3, -1, 3, 2});
  CHECK(values(x.var(0, 1, true)) == Values{2, 4.5});
  CHECK(x.var(0, 1, true).shape() == Shape{1, 2});
  CHECK(values(x.min(1).values) == Values{-1, 2});
  CHECK(values(x.min(1, true).indices) == Values{1, 1});
  CHECK(x.min(1, true).values.shape() == Shape{2, 1});
  const double share = 1 / (1 + std::exp(2.0));
  const Values first = values(x.softmax(0));
  CHECK(std::abs(first[2] - share) < 1e-6);
  CHECK(std::abs(values(x.log_softmax(0))[2] - std::log(share)) < 1e-6);
  CHECK(values(y[0].t()) == Values{2, 4});
  CHECK(!x.grad_fn());
}

TEST_CASE("nonzero() of rows long and short names the places in row-major order", "[quick]") {
  for (const Shape& shape :
       {Shape{3, 2500}, Shape{2, 1024, 3}, Shape{5000}, Shape{0, 3}, Shape{2, 0}}) {
    std::vector<bool> third(shape.numel());
    for (size_t i = 1; i < third.size(); i += 3) third[i] = true;
    const Tensor places = nonzero(tensor(third, shape));
    const int64_t count = (shape.numel() + 1) / 3;
    REQUIRE(places.shape() == Shape{count, shape.dim()});
    Tensor number = zeros({count}, {.dtype = DType::Int64});
    for (int d = 0; d < shape.dim(); ++d)
      number = number * static_cast<double>(shape[d]) + select(places, 1, d);
    CHECK(equal(number, arange(count) * 3.0 + 1.0));
  }
}

}  // namespace ringgrad::test::tensor_methods_test
