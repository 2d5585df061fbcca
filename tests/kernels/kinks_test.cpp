// The conventions where a derivative does not exist: at kinks, ties and limits. Finite differences
// say nothing there, and the suites compare one dtype with another, so the numbers stand here. So
// do those at the edges of a dtype.
#include <cmath>
#include <limits>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::kinks_test {

namespace {

using Values = std::vector<double>;

// The gradient of Σ (1, 2, 3, …) · f(x).
template <class F>
Values gradient_of(F f, const std::vector<float>& values, const Shape& shape) {
  const Tensor x = tensor(values, shape);
  x.set_requires_grad();
  const Tensor y = f(x);
  y.backward(add(to(reshape(arange(y.numel()), y.shape()), DType::Float32), 1));
  return to_vector<double>(x.grad());
}
template <class F>
Values gradient_of(F f, const std::vector<float>& values) {
  return gradient_of(f, values, {static_cast<int64_t>(values.size())});
}

}  // namespace

TEST_CASE("elementwise functions at their kinks", "[kinks][quick]") {
  CHECK(gradient_of(relu, {0, -0.0f, 1}) == Values{0, 0, 3});
  CHECK(gradient_of([](const Tensor& x) { return leaky_relu(x, 0.25); }, {0, -1, 1}) ==
        Values{0.25, 0.5, 3});
  CHECK(gradient_of([](const Tensor& x) { return abs(x); }, {0, -2, 2}) == Values{0, -2, 3});
  CHECK(gradient_of([](const Tensor& x) { return clamp(x, -1, 1); }, {-1, 1, -2, 2, 0}) ==
        Values{0, 0, 0, 0, 5});
  CHECK(gradient_of([](const Tensor& x) { return pow(x, 0); }, {0, 2}) == Values{0, 0});
  CHECK(gradient_of([](const Tensor& x) { return pow(x, 2); }, {0, 2}) == Values{0, 8});
}

TEST_CASE("a NaN in a distance is one in its gradient", "[kinks][quick]") {
  const auto hidden = [](auto f) { return !std::isnan(gradient_of(f, {NAN, 1})[0]); };
  const Tensor target = zeros({2});
  CHECK(!hidden([](const Tensor& x) { return abs(x); }));
  CHECK(!hidden([&](const Tensor& x) { return l1_loss(x, target); }));
  CHECK(!hidden([&](const Tensor& x) { return huber_loss(x, target); }));
  CHECK(!hidden([&](const Tensor& x) { return smooth_l1_loss(x, target); }));
}

// As in PyTorch: what comes back is multiplied by the sign, and infinity or NaN by 0 is NaN.
TEST_CASE("a gradient that is not finite is not hidden by the kink of a distance",
          "[kinks][quick]") {
  for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16})
    for (const double value : {double(INFINITY), -double(INFINITY), double(NAN)}) {
      const auto gradient = [&](auto f) {
        const Tensor x = full({40}, 0, {.dtype = dtype});  // vectors, and what they leave over
        x.set_requires_grad();
        f(x).backward(full({40}, value, {.dtype = dtype}));
        return to_vector<double>(x.grad());
      };
      INFO(dtype << ", " << value);
      for (const double dx : gradient([](const Tensor& x) { return abs(x); }))
        CHECK(std::isnan(dx));
      const auto loss = [&](const Tensor& x) { return l1_loss(x, zeros_like(x), Reduction::None); };
      for (const double dx : gradient(loss)) CHECK(std::isnan(dx));
    }
}

TEST_CASE("elu at NaN has a gradient that is NaN, wherever the number stands", "[kinks][quick]") {
  const auto all = gradient_of([](const Tensor& x) { return elu(x); }, std::vector<float>(40, NAN));
  for (const double dx : all) CHECK(std::isnan(dx));
}

TEST_CASE("binary cross entropies at the ends of what they take", "[kinks][quick]") {
  const Tensor target = tensor<float>({0, 1, 0.5, 0, 1, 0.5});
  const Tensor ones_each = ones({6});
  const Tensor x =
      Tensor(tensor<float>({INFINITY, INFINITY, INFINITY, -INFINITY, -INFINITY, -INFINITY}));
  x.set_requires_grad();
  const Tensor losses = binary_cross_entropy_with_logits(x, target, Reduction::None);
  losses.backward(ones_each);
  CHECK(to_vector<double>(losses) == Values{INFINITY, 0, INFINITY, 0, INFINITY, INFINITY});
  CHECK(to_vector<double>(x.grad()) == Values{1, 0, 0.5, 0, -1, -0.5});

  const Tensor t = Tensor(tensor<float>({0, 1, 0, 1})).set_requires_grad();
  binary_cross_entropy(tensor<float>({0, 0, 1, 1}), t, Reduction::Sum).backward();
  CHECK(to_vector<double>(t.grad()) == Values{INFINITY, INFINITY, -INFINITY, -INFINITY});
}

// PyTorch's, which differs where dimensions are named.
TEST_CASE("the slope of a variance that has no freedom left", "[kinks][quick]") {
  const auto slopes = [](std::vector<float> values, Dims dims, int correction) {
    return gradient_of([=](const Tensor& x) { return var(x, dims, correction); }, values);
  };
  CHECK(slopes({1, 2}, {}, 2) == Values{INFINITY, INFINITY});
  CHECK(slopes({1, 2}, {}, 3) == Values{INFINITY, INFINITY});
  CHECK(slopes({1, 2}, 0, 2) == Values{-INFINITY, INFINITY});
  CHECK(slopes({1, 2}, 0, 3) == Values{1, -1});
  CHECK(slopes({1}, {}, 0) == Values{0});
  CHECK(std::isnan(slopes({1}, {}, 1)[0]));
  CHECK(std::isnan(gradient_of([](const Tensor& x) { return x.std({}, 3); }, {1, 2})[0]));
}

TEST_CASE("at a tie of two operands each receives half", "[kinks][quick]") {
  const Tensor b = tensor<float>({1, 2, 3});
  CHECK(gradient_of([&](const Tensor& a) { return maximum(a, b); }, {1, 3, 2}) ==
        Values{0.5, 2, 0});
  CHECK(gradient_of([&](const Tensor& a) { return maximum(b, a); }, {1, 3, 2}) ==
        Values{0.5, 2, 0});
  CHECK(gradient_of([](const Tensor& a) { return maximum(a, a); }, {1, 3, 2}) == Values{1, 2, 3});
  // As in PyTorch, where one is NaN both receive all of it.
  CHECK(gradient_of([&](const Tensor& a) { return maximum(a, b); }, {NAN, 3, NAN}) ==
        Values{1, 2, 3});
  const Tensor nan = tensor<float>({NAN, NAN});
  CHECK(gradient_of([&](const Tensor& a) { return maximum(a, nan); }, {1, NAN}) == Values{1, 2});
}

TEST_CASE("the first of several equal extremes receives everything", "[kinks][quick]") {
  CHECK(gradient_of([](const Tensor& x) { return max(x); }, {1, 7, 7}) == Values{0, 1, 0});
  CHECK(gradient_of([](const Tensor& x) { return min(x); }, {1, 7, 1}) == Values{1, 0, 0});
  CHECK(gradient_of([](const Tensor& x) { return max(x, 0).values; }, {5, 1, 5, 1}, {2, 2}) ==
        Values{1, 2, 0, 0});
  CHECK(gradient_of([](const Tensor& x) { return max(x, 0).values; }, {NAN, 1, 5, NAN}, {2, 2}) ==
        Values{1, 0, 0, 2});
  CHECK(gradient_of([](const Tensor& x) { return max_pool2d(x, {.kernel = 2}); }, {3, 3, 3, 3},
                    {1, 1, 2, 2}) == Values{1, 0, 0, 0});
  const auto pooled_norm = [](const Tensor& x) {  // each number by itself
    return batch_norm(x, {}, {}, zeros({1}), ones({1}),
                      {.training = false, .eps = 0, .max_pool = 2});
  };
  CHECK(gradient_of(pooled_norm, {3, 3, 3, 3}, {1, 1, 2, 2}) == Values{1, 0, 0, 0});
  CHECK(gradient_of(pooled_norm, {3, 5, 5, 3}, {1, 1, 2, 2}) == Values{0, 1, 0, 0});
  CHECK(gradient_of(pooled_norm, {9, NAN, 5, NAN}, {1, 1, 2, 2}) == Values{0, 1, 0, 0});
  CHECK(gradient_of(pooled_norm, {-INFINITY, 1, INFINITY, 2}, {1, 1, 2, 2}) == Values{0, 0, 1, 0});
  // Overlapping windows: the middle pixel wins in both.
  CHECK(gradient_of(
            [](const Tensor& x) {
              return max_pool2d(x, {.kernel = {1, 2}, .stride = 1});
            },
            {1, 4, 4}, {1, 1, 1, 3}) == Values{0, 3, 0});
}

TEST_CASE("rows that count nothing have a gradient of 0, even where the mean is 0/0",
          "[kinks][quick]") {
  const Tensor ignored = tensor<int64_t>({-100, 1});
  const auto loss = [](const Tensor& target) {
    return [target](const Tensor& x) { return cross_entropy(x, target); };
  };
  CHECK(gradient_of(loss(ignored), {0, 0, 0, 0}, {2, 2}) == Values{0, 0, 0.5, -0.5});
  CHECK(gradient_of(loss(tensor<int64_t>({-100, -100})), {1, 2, 3, 4}, {2, 2}) ==
        Values{0, 0, 0, 0});
}

TEST_CASE("the variance of 16-bit numbers is summed in float32", "[kinks][quick]") {
  // Their mean is no bfloat16.
  CHECK(var(tensor<bfloat16>({bfloat16(256.f), bfloat16(258.f)})).item<float>() == 2);
  std::vector<float> swings;
  for (int i = 0; i < 100; ++i) swings.push_back(i % 2 ? 100 : -100);
  const Tensor wide = var(to(tensor(swings), DType::Float16));
  CHECK(wide.dtype() == DType::Float16);
  CHECK(wide.item<float>() == 10104);  // 1e6 / 99, rounded; the sum is beyond float16
}

TEST_CASE("more equal extremes than float16 can count share a gradient", "[kinks][quick]") {
  const Tensor x = to(ones({70000}), DType::Float16).detach().set_requires_grad();
  mul(norm(x, INFINITY), 70000.0 / 16).backward();
  CHECK(to_vector<double>(x.grad()) == std::vector<double>(70000, 1.0 / 16));
}

TEST_CASE("a number times 0 keeps its sign", "[kinks][quick]") {
  const Tensor zero = tensor<float>({0, -0.0f});
  CHECK(std::signbit(neg(zero).data<float>()[0]));
  CHECK(!std::signbit(neg(zero).data<float>()[1]));
  CHECK(std::signbit(mul(zero, 3).data<float>()[1]));
}

TEST_CASE("negative numbers wrap in uint8", "[kinks][quick]") {
  const Tensor one = tensor<uint8_t>({1});
  CHECK(to_vector<uint8_t>(neg(one)) == std::vector<uint8_t>{255});
  CHECK(to_vector<uint8_t>(add(one, -2)) == std::vector<uint8_t>{255});
  CHECK(to_vector<uint8_t>(full({1}, -1, {.dtype = DType::UInt8})) == std::vector<uint8_t>{255});
}

TEST_CASE("what does not fit an integer wraps or is the nearest, and is never undefined",
          "[kinks][quick]") {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  const Tensor most = tensor<int32_t>({kMost});
  const Tensor one = tensor<int32_t>({1});
  CHECK(add(most, one).item<int32_t>() == kLeast);
  CHECK(sub(tensor<int32_t>({kLeast}), one).item<int32_t>() == kMost);
  CHECK(mul(most, most).item<int32_t>() == 1);
  CHECK(add(most, 1).item<int32_t>() == kLeast);
  CHECK(mul(most, 2).item<int32_t>() == -2);

  const Tensor x = tensor<float>({-1, 1e30f, -INFINITY, NAN, -2.9f});
  CHECK(to_vector<uint8_t>(to(x, DType::UInt8)) == std::vector<uint8_t>{255, 255, 0, 0, 254});
  CHECK(to_vector<int64_t>(to(x, DType::Int64)) ==
        std::vector<int64_t>{-1, std::numeric_limits<int64_t>::max(),
                             std::numeric_limits<int64_t>::min(), 0, -2});
}

}  // namespace ringgrad::test::kinks_test
