// Names that others' programs use: methods, writes in place, a module's own parameters, and layers
// that draw. golden_ops_test has the numbers of the operations behind them.
#include <cmath>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::names_test {

namespace {

using Values = std::vector<double>;
Values values(const Tensor& x) { return to_vector<double>(x); }

// A mean of n numbers of this variance lies within six of its standard deviations.
void check_mean(double mean, double expected, double variance, double n) {
  INFO("mean " << mean << ", expected " << expected);
  CHECK(std::abs(mean - expected) <= 6 * std::sqrt(variance / n));
}

}  // namespace

TEST_CASE("a tensor as another one is, and new ones as it is", "[quick]") {
  const Tensor x = arange(6);
  const Tensor other = zeros({2, 3}, {.dtype = DType::Float64});
  CHECK(x.view_as(other).shape() == Shape{2, 3});
  CHECK(x.view_as(other).shares_memory_with(x));
  CHECK(x.reshape_as(other).shape() == Shape{2, 3});
  CHECK(values(tensor<float>({1, 2}, {2, 1}).expand_as(other)) == Values{1, 1, 1, 2, 2, 2});
  CHECK(x.type_as(other).dtype() == DType::Float64);
  CHECK((other.new_zeros({2}).dtype() == DType::Float64 &&
         values(other.new_zeros({2})) == Values{0, 0}));
  CHECK(values(x.new_ones({2})) == Values{1, 1});
  CHECK(other.new_empty({3}).dtype() == DType::Float64);
  CHECK(x.new_full({1}, 7).dtype() == DType::Int64);
}

TEST_CASE("unary operations in place give the value, and its history", "[quick]") {
  using InPlace = const Tensor& (Tensor::*)() const;
  const std::pair<InPlace, Tensor (*)(const Tensor&)> pairs[] = {
      {&Tensor::abs_, abs},       {&Tensor::neg_, neg},         {&Tensor::exp_, exp},
      {&Tensor::log_, log},       {&Tensor::log1p_, log1p},     {&Tensor::sqrt_, sqrt},
      {&Tensor::square_, square}, {&Tensor::sin_, sin},         {&Tensor::cos_, cos},
      {&Tensor::relu_, relu},     {&Tensor::sigmoid_, sigmoid}, {&Tensor::tanh_, tanh},
      {&Tensor::floor_, floor},   {&Tensor::ceil_, ceil},       {&Tensor::round_, round},
      {&Tensor::trunc_, trunc},   {&Tensor::sign_, sign}};
  for (const auto& [in_place, function] : pairs) {
    const auto leaf = [] { return tensor<double>({0.3, 1.6, 2.5}).set_requires_grad(); };
    const Tensor a = leaf();
    const Tensor b = leaf();
    const Tensor changed = a * 1;
    const Tensor same_handle = changed;
    (changed.*in_place)();
    const Tensor fresh = function(b * 1);
    CHECK(values(same_handle) == values(fresh));
    changed.sum().backward();
    fresh.sum().backward();
    CHECK(values(a.grad()) == values(b.grad()));
    CHECK_THROWS_AS((a.*in_place)(), Error);  // a leaf
  }
  const Tensor x = tensor<double>({-2, 3});
  CHECK(values(x.pow_(2)) == Values{4, 9});
  CHECK(values(x.sub_(ones({2}, {.dtype = DType::Float64}), 2).add_(1).sub_(3)) == Values{0, 5});
  CHECK(values(x.add_(2).div_(2).mul_(4).div_(tensor<double>({2, 7}))) == Values{2, 2});
  CHECK(values(x.clamp_max_(1).clamp_min_(3)) == Values{3, 3});
  CHECK(values(x.clamp_(None, 2).clamp_(5)) == Values{5, 5});
  CHECK(values(x.uniform_(2, 2)) == Values{2, 2});
  check_mean(zeros({10000}).normal_(3, 2).mean().item<double>(), 3, 4, 10000);
}

TEST_CASE("clamp with one limit leaves the other side alone", "[quick]") {
  const Tensor x = tensor<int64_t>({-5, 0, INT64_MAX});
  CHECK(equal(x.clamp_min(-1), tensor<int64_t>({-1, 0, INT64_MAX})));
  CHECK(equal(clamp(x, None, 3), tensor<int64_t>({-5, 0, 3})));
  const Tensor y = tensor<float>({-INFINITY, NAN, INFINITY});
  CHECK(std::isnan(to_vector<float>(clamp_min(y, 0))[1]));
  CHECK(to_vector<float>(clamp_max(y, 0))[0] == -INFINITY);
  require_error<Error>("clamp: neither limit is given", [&] { clamp(x, None); });
}

TEST_CASE("products of integers are int64, and the empty product is 1", "[quick]") {
  const Tensor x = tensor<int32_t>({3, -5, 7, 2}, {2, 2});
  CHECK(x.prod().dtype() == DType::Int64);
  CHECK(x.prod().item<int64_t>() == -210);
  CHECK(equal(x.prod(1), tensor<int64_t>({-15, 14})));
  CHECK(equal(x.cumprod(0), tensor<int64_t>({3, -5, 21, -10}, {2, 2})));
  CHECK(zeros({0}).prod().item<float>() == 1);
  CHECK(values(zeros({0, 2}).prod(0)) == Values{1, 1});
  // A product of many 16-bit numbers is rounded once.
  const Tensor many = to(full({1000}, 1.0078125), DType::BFloat16);
  const double want = std::pow(1.0078125, 1000);
  CHECK(std::abs(many.prod().item<double>() / want - 1) < 0x1p-8);
}

TEST_CASE("a module lists its own parameters alone, too", "[quick]") {
  struct Net : nn::Module {
    nn::Parameter scale = register_parameter("scale", ones({2}));
    nn::BatchNorm1d norm{2};
    Net() { register_module("norm", norm); }
  } net;
  CHECK(net.parameters().size() == 3);
  CHECK(net.parameters(false).size() == 1);
  CHECK(net.named_parameters(false)[0].first == "scale");
  CHECK(net.buffers().size() == 3);
  CHECK(net.buffers(false).empty());
  CHECK(net.norm.named_buffers(false).size() == 3);
}

TEST_CASE("drop_path drops whole samples", "[quick]") {
  manual_seed(3);
  const Tensor y = drop_path(ones({4000, 3}), 0.25);
  double kept = 0;
  const auto rows = to_vector<float>(y);
  for (size_t n = 0; n < 4000; ++n) {
    REQUIRE(rows[3 * n] == rows[3 * n + 1]);
    REQUIRE(rows[3 * n] == rows[3 * n + 2]);
    REQUIRE((rows[3 * n] == 0 || std::abs(rows[3 * n] - 4 / 3.0) < 1e-6));
    kept += rows[3 * n] != 0;
  }
  check_mean(kept / 4000, 0.75, 0.75 * 0.25, 4000);
  CHECK(drop_path(y, 0.25, false).is_same(y));
}

TEST_CASE("alpha_dropout keeps mean 0 and variance 1", "[quick]") {
  manual_seed(4);
  const double n = 100000;
  const Tensor y = alpha_dropout(randn({100000}), 0.3);
  check_mean(y.mean().item<double>(), 0, 1, n);
  check_mean(y.square().mean().item<double>(), 1, 4, n);  // the fourth moment is below 5
  const Tensor x = randn({7}).set_requires_grad();
  nn::AlphaDropout layer(0.5);
  layer.eval();
  CHECK(layer(x).is_same(x));
  require_error<Error>("alpha_dropout: the probability is 1", [&] { alpha_dropout(x, 1); });
}

TEST_CASE("gumbel_softmax chooses with the softmax's probabilities", "[quick]") {
  manual_seed(5);
  const int64_t n = 20000;
  const Tensor logits = log(tensor<float>({0.5, 0.375, 0.125}));
  const Tensor chosen = gumbel_softmax(logits.expand({n, 3}), 0.5, true);
  const auto share = values(chosen.mean(0));
  const Values want = {0.5, 0.375, 0.125};
  for (size_t i = 0; i < 3; ++i)
    check_mean(share[i], want[i], want[i] * (1 - want[i]), static_cast<double>(n));
  CHECK(values(chosen.sum(1)) == Values(n, 1));
  const Tensor x = randn({4, 3}).set_requires_grad();
  const Tensor soft = gumbel_softmax(x, 2);
  CHECK(difference(soft.sum(1).detach(), Values(4, 1), {DType::Float32, 3}) == "");
  soft.max().backward();
  CHECK(x.grad().abs().sum().item<float>() > 0);
}

TEST_CASE("what does not fit is refused by the new names, too", "[quick]") {
  const Tensor x = zeros({2, 3});
  require_error<ShapeError>("glu: dimension 1 of shape [2, 3] has 3 elements", [&] { glu(x); });
  require_error<Error>("meshgrid: the indexing is 'ji'", [&] { meshgrid({arange(2)}, "ji"); });
  require_error<ShapeError>("meshgrid: a tensor has shape [2, 3]", [&] { meshgrid({x}); });
  require_error<Error>("roll: 2 shifts for 1 dimensions", [&] { x.roll({1, 2}, 0); });
  require_error<ShapeError>("unfold: windows of 4 in steps of 1", [&] { x.unfold(1, 4, 1); });
  require_error<ShapeError>("pixel_shuffle: the input has shape [3, 2, 2]", [&] {
    pixel_shuffle(zeros({3, 2, 2}), 2);
  });
  require_error<ShapeError>(
      "pad: dimension 1 of shape [2, 3] with 3 elements before and 0 behind, "
      "expected at most 2",
      [&] {
        pad(x, {3, 0}, PadMode::Reflect);
      });
  require_error<Error>("max_pool2d: the dilation is 2×2", [&] {
    max_pool2d(zeros({1, 1, 4, 4}), 2, 2, 0, 2);
  });
  require_error<ShapeError>("instance_norm: the input has shape [2, 3]", [&] { instance_norm(x); });
  require_error<Error>("ReflectionPad2d: there are 2 widths, expected 4", [] {
    nn::ReflectionPad2d({1, 2});
  });
}

}  // namespace ringgrad::test::names_test
