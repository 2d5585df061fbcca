// Tests every operation that takes a tensor with tensors without elements: the value has the right
// shape, and the gradient exists and has the operand's shape.
#include <functional>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::empty_operands_test {

namespace {

Tensor labels() { return zeros({0}, {.dtype = DType::Int64}); }

struct Case {
  const char* name;
  Shape operand;
  Shape result;
  std::function<Tensor(const Tensor& x)> of;
};

std::vector<Case> cases() {
  const Tensor none = zeros({0, 3});
  const Tensor images = zeros({0, 3, 8, 8});
  const Tensor three = ones({3});
  const Tensor zero = zeros({3});
  return {
      {"cat, of shape [0]",
       {0},
       {2, 3},
       [](const Tensor& x) {
         return cat({x, ones({2, 3})});
       }},
      {"cat, behind others",
       {0},
       {2},
       [](const Tensor& x) {
         return cat({ones({2}), x, x});
       }},
      {"cat of nothings",
       {0},
       {0},
       [](const Tensor& x) {
         return cat({x, x});
       }},
      {"cat, no rows",
       {0, 3},
       {2, 3},
       [](const Tensor& x) {
         return cat({x, ones({2, 3})});
       }},
      {"stack",
       {0, 3},
       {2, 0, 3},
       [](const Tensor& x) {
         return stack({x, x});
       }},
      {"split", {0, 3}, {0, 3}, [](const Tensor& x) { return split(x, 2)[0]; }},
      {"split of columns", {0, 3}, {0, 1}, [](const Tensor& x) { return split(x, 2, 1)[1]; }},
      {"where",
       {0, 3},
       {0, 3},
       [](const Tensor& x) {
         return where(x > 0, x, ones({1, 3}));
       }},
      {"index_select",
       {4, 3},
       {0, 3},
       [](const Tensor& x) { return index_select(x, 0, labels()); }},
      {"index by a mask", {4, 3}, {0}, [](const Tensor& x) { return x.index({x > 5}); }},
      {"index by numbers", {4, 3}, {0, 3}, [](const Tensor& x) { return x.index({labels()}); }},
      {"index_put, values",
       {0, 3},
       {4, 3},
       [](const Tensor& x) {
         return index_put(ones({4, 3}), {labels()}, x);
       }},
      {"index_add",
       {0, 3},
       {4, 3},
       [](const Tensor& x) {
         return index_add(ones({4, 3}), 0, labels(), x);
       }},
      {"embedding", {4, 3}, {0, 3}, [](const Tensor& x) { return embedding(labels(), x); }},
      {"matmul",
       {0, 3},
       {0, 2},
       [](const Tensor& x) {
         return matmul(x, ones({3, 2}));
       }},
      {"matmul, inside",
       {0, 3},
       {2, 3},
       [](const Tensor& x) {
         return matmul(ones({2, 0}), x);
       }},
      {"einsum",
       {0, 3},
       {0, 2},
       [](const Tensor& x) {
         return einsum("ij,jk->ik", x, ones({3, 2}));
       }},
      {"einsum, inside",
       {0, 3},
       {2, 3},
       [](const Tensor& x) {
         return einsum("ij,jk->ik", ones({2, 0}), x);
       }},
      {"add, broadcast", {3}, {0, 3}, [=](const Tensor& x) { return none + x; }},
      {"expand",
       {1, 3},
       {0, 3},
       [](const Tensor& x) {
         return expand(x, {0, 3});
       }},
      {"repeat",
       {2, 3},
       {0, 6},
       [](const Tensor& x) {
         return repeat(x, {0, 2});
       }},
      {"pad",
       {0, 3},
       {2, 5},
       [](const Tensor& x) {
         return pad(x, {1, 1, 1, 1});
       }},
      {"sum", {0, 3}, {3}, [](const Tensor& x) { return sum(x, {0}); }},
      {"softmax", {0, 3}, {0, 3}, [](const Tensor& x) { return softmax(x, 0); }},
      {"cumsum", {0, 3}, {0, 3}, [](const Tensor& x) { return cumsum(x, 0); }},
      {"sort", {0, 3}, {0, 3}, [](const Tensor& x) { return x.sort(0).values; }},
      {"max of rows", {0, 3}, {0}, [](const Tensor& x) { return x.max(1).values; }},
      {"layer_norm",
       {0, 3},
       {0, 3},
       [=](const Tensor& x) { return layer_norm(x, {3}, three, zero); }},
      {"layer_norm, weight",
       {3},
       {0, 3},
       [=](const Tensor& x) { return layer_norm(none, {3}, x, zero); }},
      {"group_norm",
       {0, 3, 8, 8},
       {0, 3, 8, 8},
       [=](const Tensor& x) { return group_norm(x, 1, three, zero); }},
      {"conv2d",
       {0, 3, 8, 8},
       {0, 2, 6, 6},
       [](const Tensor& x) {
         return conv2d(x, ones({2, 3, 3, 3}));
       }},
      {"conv2d, filters",
       {2, 3, 3, 3},
       {0, 2, 6, 6},
       [=](const Tensor& w) { return conv2d(images, w); }},
      {"max_pool2d",
       {0, 3, 8, 8},
       {0, 3, 4, 4},
       [](const Tensor& x) { return max_pool2d(x, {.kernel = 2}); }},
      {"upsample", {0, 3, 8, 8}, {0, 3, 16, 16}, [](const Tensor& x) { return upsample(x, 16); }},
      {"cross_entropy", {0, 3}, {}, [](const Tensor& x) { return cross_entropy(x, labels()); }},
      {"mse_loss", {0, 3}, {}, [=](const Tensor& x) { return mse_loss(x, none); }},
      {"mse_loss, target", {0, 3}, {}, [=](const Tensor& x) { return mse_loss(none, x); }},
      {"binary_cross_entropy",
       {0, 3},
       {},
       [=](const Tensor& x) { return binary_cross_entropy(x, none); }},
      {"kl_div", {0, 3}, {}, [=](const Tensor& x) { return kl_div(x, none); }},
  };
}

}  // namespace

TEST_CASE("an operand without elements has its gradient, as others have", "[quick]") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    const Tensor x = zeros(c.operand).requires_grad_();
    const Tensor y = c.of(x);
    CHECK(y.shape() == c.result);
    REQUIRE(y.requires_grad());
    y.sum().backward();
    REQUIRE(x.grad().defined());
    CHECK(x.grad().shape() == c.operand);
    for (const double g : to_vector<double>(x.grad())) CHECK(g == 0);
  }
}

TEST_CASE("an empty batch leaves zeros in a layer's gradients", "[quick]") {
  nn::Linear layer(3, 2);
  layer(zeros({0, 3})).sum().backward();
  for (const Tensor& p : layer.parameters()) {
    REQUIRE(p.grad().defined());
    for (const double g : to_vector<double>(p.grad())) CHECK(g == 0);
  }
}

TEST_CASE("convolutions of no images, and of images without height, by every method", "[quick]") {
  for (const int64_t channels : {3, 16, 32})
    for (const int64_t groups : {int64_t{1}, int64_t{2}, channels})
      for (const Shape& shape : {Shape{0, channels, 8, 8}, Shape{1, channels, 0, 5}})
        for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float64}) {
          if (channels % groups != 0) continue;
          INFO(channels << " channels, " << groups << " groups, " << shape << ", " << dtype);
          const auto leaf = [&](const Shape& of) {
            return to(ones(of), dtype).detach().set_requires_grad();
          };
          const Tensor x = leaf(shape);
          const Tensor w = leaf({channels, channels / groups, 3, 3});
          const Conv2dOptions options{.padding = 2, .groups = groups};
          sum(conv2d(x, w, {}, options)).backward();
          CHECK(x.grad().shape() == shape);
          CHECK(to_vector<double>(w.grad()) ==
                std::vector<double>(static_cast<size_t>(w.numel()), 0));
          if (shape[0] > 0) continue;
          const Tensor y = conv_transpose2d(leaf(shape), w, {}, {.groups = groups});
          CHECK_NOTHROW(sum(y).backward());
        }
}

}  // namespace ringgrad::test::empty_operands_test
