// Layers: that each passes its options on, keeps its state, and begins with the weights it should.
#include <cmath>
#include <functional>
#include <memory>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/nn.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::layers_test {

namespace {

using Values = std::vector<float>;

Values values(const Tensor& x) { return to_vector<float>(x.detach()); }

void require_close(const Tensor& a, const Tensor& b, float tolerance = 1e-5f) {
  REQUIRE(a.shape() == b.shape());
  const Values x = values(a);
  const Values y = values(b);
  for (size_t i = 0; i < x.size(); ++i) {
    INFO("element " << i << ": " << x[i] << " and " << y[i]);
    REQUIRE(std::abs(x[i] - y[i]) <= tolerance);
  }
}

struct Spread {
  double mean = 0;
  double std = 0;
  double largest = 0;
};
Spread spread(const Tensor& x) {
  Spread s;
  const Values v = values(x);
  for (float e : v) s.mean += e / static_cast<double>(v.size());
  for (float e : v) s.std += (e - s.mean) * (e - s.mean) / static_cast<double>(v.size());
  for (float e : v) s.largest = std::max<double>(s.largest, std::abs(e));
  s.std = std::sqrt(s.std);
  return s;
}

std::vector<std::string> names(const nn::Module& module) {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : module.state_dict()) all.push_back(name);
  return all;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("Linear: x wᵀ + b", "[quick]") {
  nn::Linear layer(2, 3);
  REQUIRE(names(layer) == Names{"weight", "bias"});
  copy_(layer.weight, tensor<float>({1, 2, 3, 4, 5, 6}, {3, 2}));
  copy_(layer.bias, tensor<float>({10, 20, 30}));
  REQUIRE(values(layer(tensor<float>({1, -1}, {1, 2}))) == Values{9, 19, 29});
  nn::Linear plain(2, 3, {.bias = false});
  REQUIRE(names(plain) == Names{"weight"});
  copy_(plain.weight, layer.weight);
  REQUIRE(values(plain(tensor<float>({1, -1}, {1, 2}))) == Values{-1, -1, -1});
  REQUIRE_THROWS_AS(nn::Linear(0, 3), Error);
}

TEST_CASE("InstanceNorm takes images without a batch, and refuses other shapes", "[quick]") {
  manual_seed(1);
  nn::InstanceNorm1d lines(3);
  nn::InstanceNorm2d images(3);
  const Tensor line = randn({3, 5});
  const Tensor image = randn({3, 2, 4});
  REQUIRE(values(lines(line)) == values(lines(reshape(line, {1, 3, 5}))));
  REQUIRE(values(images(image)) == values(images(reshape(image, {1, 3, 2, 4}))));
  REQUIRE(values(lines(line)) != values(line));
  for (const Shape& shape : {Shape{3}, Shape{4, 3}, Shape{5, 4, 3}, Shape{1, 1, 3, 5}})
    REQUIRE_THROWS_AS(lines(ones(shape)), ShapeError);
  for (const Shape& shape : {Shape{3, 5}, Shape{2, 3, 4}, Shape{3, 2, 2, 4}, Shape{1, 1, 3, 2, 2}})
    REQUIRE_THROWS_AS(images(ones(shape)), ShapeError);
  // One pixel is its own mean, so that nothing of it would be left.
  REQUIRE_THROWS_AS(images(ones({2, 3, 1, 1})), ShapeError);
  REQUIRE(images(ones({0, 3, 1, 1})).shape() == Shape{0, 3, 1, 1});
}

TEST_CASE("Conv2d passes every option on", "[quick]") {
  manual_seed(1);
  const Tensor x = randn({2, 4, 9, 8});
  nn::Conv2d layer(4, 6, {3, 2},
                   {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2});
  REQUIRE(layer.weight.shape() == Shape{6, 2, 3, 2});
  REQUIRE(layer.bias.shape() == Shape{6});
  require_close(layer(x), conv2d(x, layer.weight, layer.bias, {2, 1}, {1, 2}, {1, 2}, 2));
  nn::Conv2d plain(4, 6, 1, {.bias = false});
  REQUIRE(names(plain) == Names{"weight"});
  require_close(plain(x), conv2d(x, plain.weight));
  REQUIRE_THROWS_AS(nn::Conv2d(4, 6, 3, {.groups = 4}), Error);
  REQUIRE_THROWS_AS(nn::Conv2d(4, 6, 0), Error);
}

TEST_CASE("ConvTranspose2d passes every option on", "[quick]") {
  manual_seed(2);
  const Tensor x = randn({1, 4, 5, 4});
  nn::ConvTranspose2d layer(
      4, 6, 3, {.stride = 2, .padding = 1, .output_padding = 1, .dilation = 1, .groups = 2});
  REQUIRE(layer.weight.shape() == Shape{4, 3, 3, 3});
  const Tensor y = layer(x);
  REQUIRE(y.shape() == Shape{1, 6, 10, 8});
  require_close(y, conv_transpose2d(x, layer.weight, layer.bias,
                                    {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2}));
}

TEST_CASE("output padding of a stride and more adds rows of nothing", "[quick]") {
  const Tensor x = randn({1, 2, 3, 4});
  const Tensor w = randn({2, 3, 3, 2});
  const Tensor least = conv_transpose2d(x, w, {}, {.stride = 2, .dilation = 6});
  const Tensor y = conv_transpose2d(x, w, {}, {.stride = 2, .output_padding = 5, .dilation = 6});
  REQUIRE(y.shape() == Shape{1, 3, least.size(2) + 5, least.size(3) + 5});
  require_close(slice(slice(y, 2, 0, -5), 3, 0, -5), least);
  REQUIRE(sum(abs(y)).item<float>() == Approx(sum(abs(least)).item<float>()));
}

TEST_CASE("BatchNorm2d in training and in evaluation", "[quick]") {
  nn::BatchNorm2d bn(2, {.eps = 0, .momentum = 0.5});
  REQUIRE(names(bn) ==
          Names{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"});
  copy_(bn.weight, tensor<float>({1, 2}));
  copy_(bn.bias, tensor<float>({0, 1}));
  // Means 2 and 15, variances 1 and 25, unbiased 2, 50.
  const Tensor x = tensor<float>({1, 3, 10, 20}, {1, 2, 1, 2});
  require_close(bn(x), tensor<float>({-1, 1, -1, 3}, {1, 2, 1, 2}));
  require_close(bn.running_mean, tensor<float>({1, 7.5}));
  require_close(bn.running_var, tensor<float>({1.5, 25.5}));
  bn(x);
  REQUIRE(bn.num_batches_tracked.item<int64_t>() == 2);

  bn.eval();
  copy_(bn.running_mean, tensor<float>({1, 10}));
  copy_(bn.running_var, tensor<float>({4, 100}));
  require_close(bn(x), tensor<float>({0, 1, 1, 3}, {1, 2, 1, 2}));
  REQUIRE(bn.num_batches_tracked.item<int64_t>() == 2);
  REQUIRE_THROWS_AS(bn(ones({2, 2})), ShapeError);
  REQUIRE_THROWS_AS(nn::BatchNorm2d(0), Error);
  bn.train();
  REQUIRE_THROWS_AS(bn(ones({1, 3, 2, 2})), ShapeError);
  REQUIRE(bn.num_batches_tracked.item<int64_t>() == 2);  // only batches that were normalised count
}

TEST_CASE("batch norm in evaluation reads running statistics with any strides", "[quick]") {
  const Tensor both = tensor<float>({1, 4, 2, 9, 3, 16}, {3, 2});
  const Tensor mean = both.as_strided({3}, {2}, 0);
  const Tensor var = both.as_strided({3}, {2}, 1);
  require_close(batch_norm(ones({1, 3}), {}, {}, mean, var, {.training = false, .eps = 0}),
                tensor<float>({0, -1.0f / 3, -0.5f}, {1, 3}));
}

TEST_CASE("BatchNorm2d fused gives what its parts give", "[quick]") {
  manual_seed(3);
  nn::BatchNorm2d bn(3);
  nn::BatchNorm2d same(3);
  const Tensor x = randn({4, 3, 5, 5});
  const Tensor r = randn({4, 3, 5, 5});
  require_close(bn(x, {.activation = Activation::Relu, .residual = r}), relu(add(same(x), r)));
  require_close(bn.running_var, same.running_var);
  require_close(bn(x, {.activation = Activation::Relu}), relu(same(x)));
  require_close(bn(x, {.activation = Activation::Relu, .max_pool = 2}),
                max_pool2d(relu(same(x)), 2));
  require_close(bn(x, {.residual = r, .max_pool = 2}), max_pool2d(add(same(x), r), 2));
}

TEST_CASE("BatchNorm2d without its tensors", "[quick]") {
  manual_seed(4);
  const Tensor x = add(mul(randn({4, 2, 6, 6}), 3), 5);
  nn::BatchNorm2d plain(2, {.affine = false, .track_running_stats = false});
  REQUIRE(names(plain).empty());
  plain.eval();
  const Spread s = spread(plain(x));
  REQUIRE(std::abs(s.mean) < 1e-4);
  REQUIRE(std::abs(s.std - 1) < 1e-3);
}

TEST_CASE("LayerNorm normalises the last dimensions", "[quick]") {
  nn::LayerNorm layer({2}, {.eps = 0});
  REQUIRE(names(layer) == Names{"weight", "bias"});
  copy_(layer.weight, tensor<float>({1, 10}));
  copy_(layer.bias, tensor<float>({0, 5}));
  require_close(layer(tensor<float>({1, 3, 50, 10}, {2, 2})),
                tensor<float>({-1, 15, 1, -5}, {2, 2}));
  REQUIRE(names(nn::LayerNorm({2}, {.affine = false})).empty());
}

TEST_CASE("activations", "[quick]") {
  const Tensor x = tensor<float>({-2, 0, 3});
  const auto check = [&](nn::Module&& module, const std::function<double(double)>& f) {
    require_close(module(x), tensor<float>({static_cast<float>(f(-2)), static_cast<float>(f(0)),
                                            static_cast<float>(f(3))}));
  };
  const auto sigma = [](double v) { return 1 / (1 + std::exp(-v)); };
  check(nn::ReLU(), [](double v) { return std::max(v, 0.0); });
  check(nn::LeakyReLU(), [](double v) { return v > 0 ? v : 0.01 * v; });
  check(nn::LeakyReLU(0.5), [](double v) { return v > 0 ? v : 0.5 * v; });
  check(nn::GELU(), [](double v) { return v * 0.5 * std::erfc(-v / std::sqrt(2.0)); });
  check(nn::SiLU(), [&](double v) { return v * sigma(v); });
  check(nn::Sigmoid(), sigma);
  check(nn::Tanh(), [](double v) { return std::tanh(v); });
}

TEST_CASE("pools", "[quick]") {
  const Tensor x =
      tensor<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, {1, 1, 4, 4});
  REQUIRE(values(nn::MaxPool2d(2)(x)) == Values{6, 8, 14, 16});
  REQUIRE(values(nn::MaxPool2d({.kernel = 3, .stride = 2, .padding = 1})(x)) ==
          Values{6, 8, 14, 16});
  REQUIRE(values(nn::AvgPool2d(2)(x)) == Values{3.5, 5.5, 11.5, 13.5});
  REQUIRE(values(nn::AvgPool2d({.kernel = 4, .stride = 1})(x)) == Values{8.5});
  REQUIRE(values(nn::AdaptiveAvgPool2d(1)(x)) == Values{8.5});
  REQUIRE(nn::AdaptiveAvgPool2d({2, 4})(x).shape() == Shape{1, 1, 2, 4});
}

TEST_CASE("Dropout2d drops whole channels", "[quick]") {
  manual_seed(6);
  nn::Dropout2d layer(0.5);
  const Values dropped = values(layer(ones({20, 10, 2, 3})));
  int64_t kept = 0;
  for (size_t i = 0; i < dropped.size(); ++i) {
    REQUIRE((dropped[i] == 0 || dropped[i] == 2));
    REQUIRE(dropped[i] == dropped[i / 6 * 6]);
    kept += dropped[i] != 0;
  }
  REQUIRE(std::abs(static_cast<double>(kept) / 6 - 100) < 5 * std::sqrt(200 * 0.25));
  layer.eval();
  REQUIRE(values(layer(ones({1, 1, 2, 2}))) == Values{1, 1, 1, 1});
  REQUIRE_THROWS_AS(nn::Dropout2d()(ones({3})), ShapeError);
}

TEST_CASE("Dropout drops in training only", "[quick]") {
  manual_seed(5);
  nn::Dropout layer(0.25);
  const Values dropped = values(layer(ones({10000})));
  const auto zeros_in = static_cast<double>(std::count(dropped.begin(), dropped.end(), 0.0f));
  REQUIRE(std::abs(zeros_in - 2500) < 5 * std::sqrt(10000 * 0.25 * 0.75));
  for (float value : dropped) REQUIRE((value == 0 || std::abs(value - 4.0f / 3) < 1e-6f));
  layer.eval();
  REQUIRE(values(layer(ones({3}))) == Values{1, 1, 1});
}

TEST_CASE("Dropout2d drops whole channels, in any layout, and their gradients with them",
          "[quick]") {
  manual_seed(5);
  nn::Dropout2d layer(0.25);
  for (const Layout layout : {Layout::Strided, Layout::ChannelsLast, Layout::ChannelBlocked}) {
    const Tensor x = to_layout(ones({50, 20, 3, 2}), layout).requires_grad_();
    const Tensor y = layer(x);
    y.sum().backward();
    REQUIRE(equal(contiguous(y.detach()), contiguous(x.grad())));
    double dropped = 0;
    for (const float sum : values(y.sum({2, 3}))) {
      REQUIRE((sum == 0 || std::abs(sum - 8) < 1e-5f));  // six elements, scaled by 4/3
      dropped += sum == 0;
    }
    REQUIRE(std::abs(dropped - 250) < 5 * std::sqrt(1000 * 0.25 * 0.75));
  }
  layer.eval();
  REQUIRE(values(layer(ones({1, 3}))) == Values{1, 1, 1});
}

template <class Options>
concept ByPosition = requires {
  Options{Pair(1), Pair(2)};
};

TEST_CASE("braces without names are a height and a width, as in libtorch", "[quick]") {
  const Tensor x = ones({1, 1, 6, 6});
  REQUIRE(max_pool2d(x, {3, 2}).shape() == Shape{1, 1, 2, 3});
  REQUIRE(avg_pool2d(x, {3, 2}, {1, 2}).shape() == Shape{1, 1, 4, 3});
  REQUIRE(max_pool2d(x, 3, 2, 1).shape() == Shape{1, 1, 3, 3});
  REQUIRE(nn::MaxPool2d({3, 2})(x).shape() == Shape{1, 1, 2, 3});
  REQUIRE(conv2d(x, ones({1, 1, 2, 2}), {}, {2, 1}).shape() == Shape{1, 1, 3, 5});
  static_assert(!ByPosition<Pool2dOptions> && !ByPosition<Conv2dOptions> &&
                !ByPosition<ConvTranspose2dOptions>);
  static_assert(!ByPosition<nn::Conv2dOptions> && !ByPosition<nn::ConvTranspose2dOptions>);
}

TEST_CASE("Flatten, Identity and Sequential", "[quick]") {
  REQUIRE(nn::Flatten()(ones({2, 3, 4, 5})).shape() == Shape{2, 60});
  REQUIRE(nn::Flatten(0, 1)(ones({2, 3, 4})).shape() == Shape{6, 4});
  REQUIRE(nn::Unflatten(1, {2, -1})(ones({4, 6})).shape() == Shape{4, 2, 3});
  REQUIRE(nn::Unflatten(1, {2, -1})(ones({0, 6})).shape() == Shape{0, 2, 3});
  REQUIRE_THROWS_AS(nn::Unflatten(1, {4, -1})(ones({4, 6})), ShapeError);
  const Tensor x = ones({2});
  REQUIRE(nn::Identity()(x).is_same(x));
  REQUIRE(nn::Sequential()(x).is_same(x));

  nn::Sequential net{std::make_shared<nn::Linear>(2, 3), std::make_shared<nn::ReLU>()};
  net.push_back(std::make_shared<nn::Linear>(3, 1, nn::LinearOptions{.bias = false}));
  REQUIRE(net.size() == 3);
  REQUIRE(names(net) == Names{"0.weight", "0.bias", "2.weight"});
  auto& first = dynamic_cast<nn::Linear&>(net[0]);
  auto& last = dynamic_cast<nn::Linear&>(net[2]);
  copy_(first.weight, tensor<float>({1, 0, 0, 1, -1, -1}, {3, 2}));
  copy_(first.bias, tensor<float>({0, 1, 0}));
  copy_(last.weight, tensor<float>({1, 10, 100}, {1, 3}));
  // relu(2, 4, -5) · (1, 10, 100).
  REQUIRE(values(net(tensor<float>({2, 3}, {1, 2}))) == Values{42});
  net.eval();
  REQUIRE(!first.is_training());
  REQUIRE_THROWS_AS(net.push_back(nullptr), Error);
}

TEST_CASE("init: fans and the distributions' widths", "[quick]") {
  const Tensor w = empty({64, 32, 3, 3});
  const double in = 32 * 9;
  const double out = 64 * 9;
  const double n = static_cast<double>(w.numel());
  REQUIRE(nn::init::fans(w).in == 32 * 9);
  REQUIRE(nn::init::fans(w).out == 64 * 9);
  REQUIRE(nn::init::fans(empty({5, 7})).in == 7);
  REQUIRE_THROWS_AS(nn::init::fans(empty({5})), ShapeError);
  require_error<Error>("init: the weight is an undefined tensor",
                       [] { nn::init::kaiming_normal_({}); });

  manual_seed(6);
  const auto check = [&](double std, bool uniform) {
    const Spread s = spread(w);
    INFO("std " << s.std << ", expected " << std);
    REQUIRE(std::abs(s.mean) < 5 * std / std::sqrt(n));
    // A normal variable's std is known to 1/sqrt(2n).
    REQUIRE(std::abs(s.std / std - 1) < 5 / std::sqrt(n));
    if (uniform) {
      REQUIRE(s.largest <= std::sqrt(3.0) * std * (1 + 1e-6));
      REQUIRE(s.largest > std::sqrt(3.0) * std * 0.99);
    } else {
      REQUIRE(s.largest > 3 * std);
    }
  };
  using nn::init::FanMode;
  nn::init::kaiming_normal_(w);
  check(std::sqrt(2 / in), false);
  nn::init::kaiming_normal_(w, {.mode = FanMode::FanOut});
  check(std::sqrt(2 / out), false);
  nn::init::kaiming_uniform_(w, {.negative_slope = std::sqrt(5.0)});
  check(std::sqrt(1 / (3 * in)), true);
  nn::init::xavier_normal_(w);
  check(std::sqrt(2 / (in + out)), false);
  nn::init::xavier_uniform_(w, 2);
  check(2 * std::sqrt(2 / (in + out)), true);
  nn::init::layer_default_(w, {});
  check(1 / std::sqrt(3 * in), true);
}

TEST_CASE("init: layers begin as PyTorch's, and the seed decides", "[quick]") {
  manual_seed(7);
  nn::Linear a(100, 400);
  const double bound = 0.1;
  REQUIRE(spread(a.weight).largest <= bound);
  REQUIRE(spread(a.weight).largest > 0.99 * bound);
  REQUIRE(spread(a.bias).largest <= bound);
  REQUIRE(spread(a.bias).largest > 0.9 * bound);
  nn::Linear b(100, 400);
  REQUIRE(values(a.weight) != values(b.weight));
  manual_seed(7);
  nn::Linear c(100, 400);
  REQUIRE(values(a.weight) == values(c.weight));
  REQUIRE(values(a.bias) == values(c.bias));
}

TEST_CASE("init: layers of one kind of parameter each", "[quick]") {
  REQUIRE(values(nn::PReLU(2).weight) == Values{0.25, 0.25});
  nn::GroupNorm norm(2, 4);
  REQUIRE(values(norm.weight) == Values{1, 1, 1, 1});
  REQUIRE(values(norm.bias) == Values{0, 0, 0, 0});
  manual_seed(9);
  nn::Conv1d conv(50, 40, 2);
  REQUIRE(spread(conv.weight).largest <= 0.1);
  REQUIRE(spread(conv.weight).largest > 0.099);
  REQUIRE(spread(conv.bias).largest > 0.08);
  nn::Embedding words(50, 40, {.padding_idx = -1});
  REQUIRE(std::abs(spread(words.weight).std - 0.99) < 0.1);
  REQUIRE(values(words.weight[49]) == Values(40, 0));
}

TEST_CASE("layers with float32 parameters take 16-bit inputs", "[quick]") {
  const Tensor x = to(tensor<float>({-4, 8}, {1, 2}), DType::BFloat16);
  nn::PReLU layer;
  const Tensor y = layer(x);
  REQUIRE(y.dtype() == DType::BFloat16);
  REQUIRE(to_vector<float>(y.detach()) == Values{-1, 8});
  y.sum().backward();
  REQUIRE(values(layer.weight.grad()) == Values{-4});
  REQUIRE(nn::GroupNorm(1, 2)(x).dtype() == DType::BFloat16);
}

TEST_CASE("layers refuse what does not fit", "[quick]") {
  const Tensor none;
  const auto refused = [](const std::string& text, const std::function<void()>& f) {
    require_error<Error>(text, f);
  };
  const auto misfit = [](const std::string& text, const std::function<void()>& f) {
    require_error<ShapeError>(text, f);
  };
  refused("GroupNorm: 4 channels in 3 groups", [] { nn::GroupNorm(3, 4); });
  refused("GroupNorm: 4 channels in 0 groups", [] { nn::GroupNorm(0, 4); });
  refused("GroupNorm: 0 channels in 2 groups", [] { nn::GroupNorm(2, 0); });
  for (const Shape& shape : {Shape{2, 5}, Shape{4}})
    misfit("expected [N, 4, …]", [&] { nn::GroupNorm(2, 4)(ones(shape)); });
  misfit("PReLU: the input has shape [2, 5] with 5 channels, expected 3", [] {
    nn::PReLU(3)(ones({2, 5}));
  });
  misfit("PReLU: the input has shape [3] with 1 channels, expected 3",
         [] { nn::PReLU(3)(ones({3})); });
  refused("PReLU: 0 parameters, expected at least 1", [] { nn::PReLU(0); });
  refused("Upsample: the size is 0×0 and the scale factor 0, expected one of the two",
          [] { nn::Upsample({}); });
  for (const Shape& shape : {Shape{1, 1, 3, 4}, Shape{1, 1, 4, 3}})
    misfit("times 1.5 is ", [&] { nn::Upsample({.scale_factor = 1.5})(ones(shape)); });
  misfit("Upsample: the input has shape [1, 3, 4], expected [N, C, H, W]", [] {
    nn::Upsample({.size = 2})(ones({1, 3, 4}));
  });
  require_error<IndexError>("Embedding: padding_idx is 3, there are 3 rows",
                            [] { nn::Embedding(3, 2, {.padding_idx = 3}); });
  require_error<IndexError>("Embedding: padding_idx is -4, there are 3 rows",
                            [] { nn::Embedding(3, 2, {.padding_idx = -4}); });
  refused("Embedding: 0 rows of 2 numbers", [] { nn::Embedding(0, 2); });
  refused("Embedding: 2 rows of 0 numbers", [] { nn::Embedding(2, 0); });
  refused("InstanceNorm2d: 0 features, expected at least 1", [] { nn::InstanceNorm2d(0); });
  refused("Conv1d: the kernel is 1×0", [] { nn::Conv1d(1, 2, 0); });
  refused("GroupNorm: the input is an undefined tensor", [&] { nn::GroupNorm(2, 4)(none); });
  refused("PReLU: the input is an undefined tensor", [&] { nn::PReLU()(none); });
  refused("Upsample: the input is an undefined", [&] { nn::Upsample({.size = 2})(none); });
  refused("InstanceNorm2d: the input is an undefined", [&] { nn::InstanceNorm2d(1)(none); });
  refused("Unflatten: the input is an undefined tensor", [&] { nn::Unflatten(1, {2})(none); });
  refused("BatchNorm1d: the input is an undefined", [&] { nn::BatchNorm1d(2)(none); });
}

TEST_CASE("layers of a size, of one number, and without a bias", "[quick]") {
  REQUIRE(values(nn::Upsample({.size = {1, 4}})(tensor<float>({3, 5}, {1, 1, 1, 2}))) ==
          Values{3, 3, 5, 5});
  REQUIRE(nn::Upsample({.size = {1, 4}}).extra_repr() == "size=(1, 4), mode='nearest'");
  REQUIRE(nn::PReLU(1, 0.5)(full({}, -3)).item<float>() == -1.5f);
  REQUIRE(names(nn::GroupNorm(1, 2, {.bias = false})) == Names{"weight"});
  REQUIRE(nn::Unflatten(0, {4}).extra_repr() == "dim=0, unflattened_size=(4,)");
  REQUIRE(nn::Unflatten(0, {4, 2}).extra_repr() == "dim=0, unflattened_size=(4, 2)");
}

TEST_CASE("a small network learns, all parts together", "[quick]") {
  manual_seed(8);
  nn::Sequential net{std::make_shared<nn::Linear>(2, 16), std::make_shared<nn::Tanh>(),
                     std::make_shared<nn::Linear>(16, 2)};
  optim::AdamW optimizer(net.named_parameters(), {.lr = 0.05});
  const Tensor x = tensor<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});
  const Tensor t = tensor<int64_t>({0, 1, 1, 0});
  float loss = 0;
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    const Tensor l = cross_entropy(net(x), t);
    l.backward();
    optim::clip_grad_norm_(net.parameters(), 1);
    optimizer.step();
    loss = l.item<float>();
  }
  REQUIRE(loss < 0.02f);  // exclusive or: no linear network gets below log 2 = 0.69
}

}  // namespace ringgrad::test::layers_test
