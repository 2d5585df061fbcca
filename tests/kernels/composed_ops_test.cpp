// Operations made of others, where PyTorch cannot say what is right
// (tests/golden/golden_tensor_ops.cpp has its values and gradients). refused_ops_test.cpp has what
// they refuse.
#include <atomic>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <thread>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::composed_ops_test {

TEST_CASE("pools of a picture without a batch are those of a batch of it", "[quick]") {
  manual_seed(4);
  const Tensor x = rand({2, 5, 7});
  const Tensor batch = unsqueeze(x, 0);
  for (const bool ceil_mode : {false, true}) {
    CHECK(equal(max_pool2d(x, 2, 2, 0, 1, ceil_mode),
                squeeze(max_pool2d(batch, 2, 2, 0, 1, ceil_mode), 0)));
    CHECK(equal(avg_pool2d(x, 2, 2, 0, ceil_mode),
                squeeze(avg_pool2d(batch, 2, 2, 0, ceil_mode), 0)));
  }
  CHECK(max_pool2d(x, 2, 2, 0, 1, true).shape() == Shape{2, 3, 4});
  require_error<Error>("max_pool2d: the dilation is 2×2", [&] { max_pool2d(x, 2, 2, 0, 2); });
  require_error<ShapeError>("the kernel 9×9 does not fit",
                            [&] { max_pool2d(x, 9, 1, 0, 1, true); });
  // The pools refuse the same strides with ceil_mode.
  for (const Pair stride : {Pair(-1, 1), Pair(1, -1)})
    for (const bool ceil_mode : {false, true}) {
      const std::string of_max =
          thrown<Error>([&] { max_pool2d(batch, 2, stride, 0, 1, ceil_mode); });
      CHECK(of_max == thrown<Error>([&] { max_pool2d(batch, 2, stride, 0, 1, false); }));
      CHECK(thrown<Error>([&] { avg_pool2d(batch, 2, stride, 0, ceil_mode); }) ==
            thrown<Error>([&] { avg_pool2d(batch, 2, stride, 0, false); }));
    }
}

TEST_CASE("parts and places at the ends of a dimension", "[quick]") {
  const Tensor x = tensor<int64_t>({1, 2, 3, 4, 5});
  CHECK(to_vector<int64_t>(narrow(x, 0, -2, 2)) == std::vector<int64_t>{4, 5});
  CHECK(x.chunk(INT64_MAX).size() == 5);
  CHECK(x.chunk(3)[2].size(0) == 1);
  CHECK(x.chunk(4).size() == 3);
  CHECK(x.split(INT64_MAX).size() == 1);
  CHECK(zeros({0, 2}).chunk(3).size() == 1);
  const Tensor flipped = flip(x, {});
  CHECK(equal(flipped, x));
  CHECK(!flipped.is_same(x));
  CHECK(equal(meshgrid({x}, "xy")[0], x));
  CHECK(squeeze(zeros({1, 3, 1})).shape() == Shape{3});
  CHECK(to_vector<int64_t>(slice(x, 0, -2, 5)) == std::vector<int64_t>{4, 5});
  CHECK(to_vector<int64_t>(repeat(x, {1, 0})).empty());
  const Tensor number = ones({});
  for (const Shape& times : {Shape(), Shape{1}}) {
    CHECK(repeat(number, times).shape() == times);
    CHECK(!repeat(number, times).is_same(number));
  }
}

TEST_CASE("numbers that whole tensors cannot take, and what they do with the others", "[quick]") {
  const Tensor x = tensor<int64_t>({-3, 0, 2});
  const auto numbers = [](const Tensor& y) { return to_vector<double>(y); };
  using Numbers = std::vector<double>;
  for (const Scalar power : {Scalar(-1), Scalar(-2.0)})
    require_error<DTypeError>("expected one of at least 0, since other powers are no integers",
                              [&] { pow(x, power); });
  require_error<DTypeError>("pow", [] { pow(zeros({1}, {.dtype = DType::Bool}), 2); });
  CHECK(numbers(pow(x, 3)) == Numbers{-27, 0, 8});
  CHECK(numbers(pow(x, 0)) == Numbers{1, 1, 1});
  for (const std::pair<double, double>& limits :
       std::vector<std::pair<double, double>>{{1, 0}, {NAN, 1}, {0, NAN}})
    require_error<Error>("clamp: the lower limit",
                         [&] { clamp(zeros({1}), limits.first, limits.second); });
  require_error<DTypeError>("and the number 0.5, expected a whole", [&] { clamp(x, 0.5, {}); });
  require_error<DTypeError>("cannot hold the number -5; convert the tensor",
                            [] { clamp(zeros({1}, {.dtype = DType::UInt8}), -5, {}); });
  CHECK(numbers(floor(x)) == Numbers{-3, 0, 2});
  CHECK(!floor(x).is_same(x));
  CHECK(numbers(6 / tensor<int64_t>({-3, 4})) == Numbers{-2, 1.5});
  CHECK((6 / x).dtype() == DType::Float32);
  // The least integer has no negative among them.
  CHECK(numbers(zeros({1}, {.dtype = DType::Float64}) - INT64_MIN) == Numbers{0x1p63});
  CHECK(numbers(zeros({1}, {.dtype = DType::Int64}) - INT64_MIN) == Numbers{-0x1p63});
}

TEST_CASE("products of pairs that leave the range do not spoil the whole product", "[quick]") {
  const Tensor x = tensor<float>({1e30f, 1e-30f, 1e30f, 1e-30f}).requires_grad_();
  const Tensor y = x.prod();
  CHECK(std::abs(y.item<double>() - 1) < 1e-5);
  y.backward();  // the product of the others
  CHECK(difference(x.grad() * tensor<float>({1e30f, 1e-30f, 1e30f, 1e-30f}), {1, 1, 1, 1},
                   {DType::Float32, 4}) == "");
  CHECK(tensor<float>({1e30f, 0, 1e30f, 0}).prod().item<float>() == 0);
  CHECK(difference(tensor<float>({1e-30f, 1e30f, 1e30f}).cumprod(0) * 1e-30, {1e-60, 1e-30, 1},
                   {DType::Float32, 3}) == "");
  CHECK(to_vector<float>(tensor<float>({0, 1e30f, 1e30f}).cumprod(0)) ==
        std::vector<float>{0, 0, 0});
}

TEST_CASE("the result of prod and pad is never their argument itself", "[quick]") {
  for (const DType dtype : {DType::Float64, DType::Float32, DType::Int64}) {
    const Tensor x = full({2, 1}, 3, {.dtype = dtype});
    x.prod(1).zero_();
    x.prod(1, true).zero_();
    x[0].prod().zero_();
    x[0][0].prod().zero_();
    CHECK(to_vector<double>(x) == std::vector<double>{3, 3});
  }
  const Tensor image = ones({1, 2, 2});
  for (const PadMode mode :
       {PadMode::Constant, PadMode::Reflect, PadMode::Replicate, PadMode::Circular}) {
    pad(image, {0, 0, 0, 0}, mode).zero_();
    CHECK(image.sum().item<double>() == 4);
  }
}

TEST_CASE("repeat gives copies side by side, and their gradients together", "[quick]") {
  const Tensor x = tensor<float>({1, 2, 3, 4}, {2, 2}).requires_grad_();
  const Tensor y = repeat(x, {2, 1, 3});
  CHECK(y.shape() == Shape{2, 2, 6});
  CHECK(to_vector<float>(y) ==
        std::vector<float>{1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4, 1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4});
  y.sum().backward();
  CHECK(to_vector<float>(x.grad()) == std::vector<float>{6, 6, 6, 6});
  CHECK(repeat(x, {0, 2}).shape() == Shape{0, 4});
  CHECK(repeat(zeros({0, 2}), {3, 2}).shape() == Shape{0, 4});
  const Tensor one = ones({1});
  repeat(one, {3})[0] = 2;  // a copy, each element at its own place
  CHECK(one.item<float>() == 1);
}

TEST_CASE("NaN stays NaN where numbers below a limit are replaced", "[quick]") {
  const Tensor x = tensor<float>({NAN, -1, 0.25, 1}).requires_grad_();
  const auto check = [&](const Tensor& y, const std::vector<double>& want,
                         const std::vector<double>& slope) {
    CHECK(difference(y, want, {DType::Float32}) == "");
    x.set_grad({});
    y.sum().backward();
    CHECK(to_vector<double>(x.grad()) == slope);
  };
  check(threshold(x, 0, 5), {NAN, 5, 0.25, 1}, {1, 0, 1, 1});
  check(hardshrink(x), {NAN, -1, 0, 1}, {1, 1, 0, 1});
}

TEST_CASE("normalize takes zeros, and norms beyond 16 bits, in 16 bits, too", "[quick]") {
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    const Tensor none = zeros({2, 3}, {.dtype = dtype});
    CHECK(to_vector<double>(normalize(none)) == std::vector<double>(6, 0));
    CHECK(to_vector<double>(cosine_similarity(none, ones_like(none))) == std::vector<double>(2, 0));
    // The norm is 80,000, beyond float16's largest number.
    const Tensor large = full({1, 4}, 40000, {.dtype = dtype});
    CHECK(to_vector<double>(normalize(large)) == std::vector<double>(4, 0.5));
    CHECK(normalize(large).dtype() == dtype);
  }
}

TEST_CASE("cross_entropy of as many dimensions as there are", "[quick]") {
  const Tensor x = tensor<float>({1, 2, -1, 0.5});
  const Tensor target = tensor<int64_t>({1, 0});
  const Tensor flat = cross_entropy(x.reshape({2, 2}), target);
  const Tensor deep =
      cross_entropy(x.reshape({2, 2, 1, 1, 1, 1, 1, 1}), target.reshape({2, 1, 1, 1, 1, 1, 1}));
  CHECK(std::abs(deep.item<float>() - flat.item<float>()) < 1e-6f);
}

TEST_CASE("a quotient of whole numbers has a fraction, as in PyTorch", "[quick]") {
  const Tensor seven = tensor<int64_t>({7, -7});
  const Tensor two = full({}, 2, {.dtype = DType::Int64});
  for (const Tensor& y : {seven / two, seven / 2}) {
    CHECK(y.dtype() == DType::Float32);
    CHECK(to_vector<float>(y) == std::vector<float>{3.5, -3.5});
  }
}

TEST_CASE("a write that a channel-blocked tensor or its view would not show is refused",
          "[quick]") {
  const NoGradGuard no_grad;
  const Tensor y =
      to_layout(arange(36, {.dtype = DType::Float32}).view({2, 2, 3, 3}), Layout::ChannelBlocked);
  const auto refuses = [&](const char* operation, const std::function<void()>& write) {
    const double before = y.sum().item<double>();
    const std::string what = thrown<Error>(write);
    require_contains(what, operation);
    require_contains(what, "the tensor is channel-blocked and has views, or is such a view");
    CHECK(y.sum().item<double>() == before);
  };
  refuses("copy_", [&] { y[0] += 1; });
  refuses("fill_", [&] { y.detach()[0] = 3; });
  refuses("fill_", [&] { y.detach()[1][0][2] = 3; });
  refuses("copy_", [&] { y.index({0, 1}).copy_(ones({3, 3})); });
  refuses("fill_", [&] { y.narrow(1, 0, 1).fill_(0); });
  refuses("fill_", [&] { y.flatten()[7] = 0; });
  refuses("copy_", [&] { y.view({4, 9})[1] *= 2; });
  refuses("fill_", [&] { y.transpose(2, 3).detach().zero_(); });
  refuses("fill_", [&] { y.expand({2, 2, 3, 3}).zero_(); });
  refuses("uniform_", [&] { y.slice(1, 1).uniform_(); });
  {
    const Tensor view = y.select(0, 1);
    refuses("fill_", [&] { y.zero_(); });  // the view would keep the old values
    refuses("fill_", [&] { y.detach().zero_(); });
    refuses("copy_", [&] { y += 1; });
    CHECK(view.sum().item<double>() == 27 * 18 - 9);
  }
  y.zero_();  // no view is left
  CHECK(y.sum().item<double>() == 0);
  const Tensor rest = [&] { return to_layout(ones({1, 2, 3, 3}), Layout::ChannelBlocked)[0]; }();
  rest[0] = 3;  // whose tensor is gone
  CHECK(rest.sum().item<double>() == 36);
  const Tensor z = contiguous(y);  // as the error says
  z[0] += 1;
  CHECK(z.sum().item<double>() == 18);
}

TEST_CASE("a view of a channel-blocked tensor with a history is not changed behind its back",
          "[quick]") {
  const Tensor x = ones({1, 2, 3, 3}).requires_grad_();
  const Tensor y = to_layout(x * 2, Layout::ChannelBlocked);
  Tensor view = y.flatten();
  CHECK(thrown<Error>([&] { view.detach().zero_(); }) != "nothing was thrown");
  CHECK(thrown<Error>([&] { view.relu_(); }) != "nothing was thrown");
  CHECK(thrown<Error>([&] { y.detach().zero_(); }) != "nothing was thrown");
  (y.sum() + view.sum()).backward();
  CHECK(x.grad().sum().item<double>() == 72);
}

TEST_CASE("threads that take views of one channel-blocked tensor do not disturb each other",
          "[quick]") {
  const Tensor y = to_layout(arange(2 * 17 * 9, {.dtype = DType::Float32}).view({2, 17, 3, 3}),
                             Layout::ChannelBlocked);
  const double sum = y.sum().item<double>();
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([&] {
        const NoGradGuard no_grad;
        for (int i = 0; i < 50; ++i) {
          const double parts = y[0].sum().item<double>() + y[1].sum().item<double>();
          wrong += parts != sum || y.flatten().sum().item<double>() != sum;
        }
      });
  }
  CHECK(wrong == 0);
  CHECK(y.is_channel_blocked());  // reading changed nothing
}

TEST_CASE("a scatter of several values to one place leaves their sum, and x elsewhere", "[quick]") {
  const Tensor y = scatter(ones({4}), 0, tensor<int64_t>({2, 0, 2}), tensor<float>({3, 4, 5}));
  CHECK(to_vector<float>(y) == std::vector<float>{4, 1, 8, 1});
}

TEST_CASE("of no values nothing is normalised: weights have a gradient of 0, statistics stay",
          "[quick]") {
  const Tensor weight = ones({2}).requires_grad_();
  const Tensor bias = ones({2}).requires_grad_();
  const Tensor mean = full({2}, 3);
  const Tensor var = full({2}, 4);
  for (const Shape& shape : {Shape{0, 2, 3, 3}, Shape{3, 2, 0, 3}, Shape{0, 2}})
    for (const bool training : {true, false}) {
      const Tensor x = zeros(shape).requires_grad_();
      const Tensor y = batch_norm(x, weight, bias, mean, var,
                                  {.training = training, .activation = Activation::Relu});
      CHECK(y.shape() == shape);
      y.sum().backward();
      CHECK(x.grad().shape() == shape);
    }
  CHECK(to_vector<float>(mean) == std::vector<float>{3, 3});
  CHECK(to_vector<float>(var) == std::vector<float>{4, 4});
  for (const Shape& shape : {Shape{0, 2}, Shape{3, 0, 2}})
    layer_norm(zeros(shape), {2}, weight, bias).sum().backward();
  CHECK(layer_norm(zeros({2, 0}), {0}, zeros({0}), zeros({0})).shape() == Shape{2, 0});
  CHECK(to_vector<float>(weight.grad()) == std::vector<float>{0, 0});
  CHECK(to_vector<float>(bias.grad()) == std::vector<float>{0, 0});
}

TEST_CASE("batch norm with max pooling has its parts' gradients", "[quick]") {
  manual_seed(4);
  const Tensor values_of_x = randn({6, 18, 5, 7});
  const Tensor dy = randn({6, 18, 2, 3});
  for (const bool affine : {true, false})
    for (const bool training : {true, false})
      for (const bool rectified : {true, false}) {
        INFO("affine " << affine << ", training " << training << ", relu " << rectified);
        const auto gradients = [&](bool fused, bool wants_dx) {
          const Tensor x = values_of_x.clone().set_requires_grad(wants_dx);
          const Tensor mean = zeros({18});
          const Tensor var = ones({18});
          std::vector<Tensor> leaves{x};
          if (affine) leaves = {x, rand({18}).set_requires_grad(), rand({18}).set_requires_grad()};
          const Activation activation = rectified ? Activation::Relu : Activation::None;
          const BatchNormOptions options{
              .training = training, .activation = activation, .max_pool = fused ? 2 : 0};
          const Tensor y = batch_norm(x, affine ? leaves[1] : Tensor(),
                                      affine ? leaves[2] : Tensor(), mean, var, options);
          if (affine || wants_dx) (fused ? y : max_pool2d(y, 2)).backward(dy);
          std::vector<Tensor> results{y};
          for (const Tensor& leaf : leaves) results.push_back(leaf.grad());
          return results;
        };
        for (const bool wants_dx : {true, false}) {
          manual_seed(5);
          const std::vector<Tensor> fused = gradients(true, wants_dx);
          manual_seed(5);
          const std::vector<Tensor> parts = gradients(false, wants_dx);
          for (size_t i = 1; i < fused.size(); ++i) {
            REQUIRE(fused[i].defined() == parts[i].defined());
            if (fused[i])
              CHECK(difference(fused[i], to_vector<double>(parts[i]),
                               {DType::Float32, 6 * 5 * 7}) == "");
          }
        }
      }
}

TEST_CASE("topk has what a sort begins with", "[quick]") {
  const Tensor x = to(rand({2, 300, 3}) * 100, DType::Int32);  // with equals
  for (const DType dtype : {DType::Int32, DType::Float32, DType::Float64})
    for (const int64_t k : {0, 5, 100, 300})
      for (const bool largest : {true, false}) {
        const auto [values, indices] = topk(to(x, dtype), k, 1, largest);
        const auto sorted = sort(to(x, dtype), 1, largest);
        CHECK(to_vector<int64_t>(indices) == to_vector<int64_t>(narrow(sorted.indices, 1, 0, k)));
        CHECK(to_vector<double>(values) == to_vector<double>(narrow(sorted.values, 1, 0, k)));
      }
}

TEST_CASE(
    "group_norm and its gradients are those of layer_norm of the groups, "
    "and a function of each channel") {
  const auto composed = [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    const Tensor y = reshape(layer_norm(reshape(x, {x.size(0), 2, x.numel() / x.size(0) / 2}),
                                        {x.numel() / x.size(0) / 2}),
                             {x.size(0), x.size(1), x.numel() / x.size(0) / x.size(1)});
    return reshape(y * unsqueeze(weight, 1) + unsqueeze(bias, 1), x.shape());
  };
  const Shape shapes[] = {{3, 4}, {2, 6, 5}, {2, 4, 40, 30}, {1, 2, 3, 2, 2}};
  for (const Shape& shape : shapes) {
    const TensorOptions float64 = {.dtype = DType::Float64};
    const Tensor g = randn(shape, float64), weight = randn({shape[1]}, float64),
                 bias = randn({shape[1]}, float64);
    const Tensor transposed = transpose(randn(shape, float64), 0, 1);  // not contiguous
    const Tensor inputs[] = {transpose(clone(contiguous(transposed)), 0, 1), weight, bias};
    std::vector<Tensor> results[2];
    for (const bool fused : {false, true}) {
      for (const Tensor& input : inputs) {
        input.set_grad({});
        input.set_requires_grad(true);
      }
      const Tensor y =
          fused ? group_norm(inputs[0], 2, weight, bias) : composed(inputs[0], weight, bias);
      y.backward(g);
      results[fused] = {y, inputs[0].grad(), weight.grad(), bias.grad()};
    }
    for (size_t i = 0; i < 4; ++i)
      CHECK(max(abs(results[0][i] - results[1][i])).item<double>() < 1e-10);
    const Tensor x = inputs[0].detach();
    const Tensor plain = group_norm(x, 2);
    CHECK(max(abs(plain - composed(x, ones_like(weight), zeros_like(bias)))).item<double>() <
          1e-10);
    CHECK(
        max(abs(group_norm(to(x, DType::BFloat16), 2).to(DType::Float64) - plain)).item<double>() <
        0.1);
  }
}

}  // namespace ringgrad::test::composed_ops_test
