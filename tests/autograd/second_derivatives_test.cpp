// create_graph: gradients with a history of their own. What single operations give is in op_test,
// whole programs are in second_order_test; here is what the engine does, and what it refuses.
#include <sstream>

#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/gradcheck.h"
#include "ringgrad/autograd/graph_print.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/kernel_profile.h"
#include "ringgrad/nn.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/kernels/cpu_kernels.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::second_derivatives_test {

namespace {

using Values = std::vector<double>;

Tensor leaf(const Values& values) {
  return tensor(values, {static_cast<int64_t>(values.size())}).set_requires_grad();
}

// d(sum of y)/dx.
Tensor slope(const Tensor& y, const Tensor& x, bool create_graph = true) {
  return autograd::grad({sum(y)}, {x}, {.create_graph = create_graph})[0];
}

// x³, with a backward that a user writes.
template <class Backward>
Tensor cube(const Tensor& x, Backward backward) {
  return differentiable("cube", {x}, (x * x * x).detach(), backward);
}

}  // namespace

TEST_CASE("derivatives of derivatives, to the third", "[autograd][quick]") {
  const Tensor x = leaf({2, -1, 0.5});
  const Tensor first = slope(pow(x, 4), x);
  CHECK(to_vector<double>(first) == Values{32, -4, 0.5});
  const Tensor second = slope(first, x);
  CHECK(to_vector<double>(second) == Values{48, 12, 3});
  const Tensor third = slope(second, x, false);
  CHECK(to_vector<double>(third) == Values{48, -24, 12});
  CHECK(!third.requires_grad());
}

TEST_CASE("an operation of one's own is differentiated twice if it says what it saves",
          "[autograd][quick]") {
  const Tensor x = leaf({2, -1, 0.5});
  const auto second = [&](auto backward) {
    return to_vector<double>(slope(slope(cube(x, backward), x), x));
  };
  CHECK(second([x = save(x, 0)](const Tensor& dy) -> Gradients {
          return {dy * x.get() * x.get() * 3};
        }) == Values{12, -6, 3});
  // The output y is saved: dx = 3 dy y^(2/3), here for x > 0.
  const Tensor z = leaf({1, 8});
  Tensor y = (z * z * z).detach();
  y = differentiable("cube", {z}, y, [y = save(y, kSavedOutput)](const Tensor& dy) -> Gradients {
    return {dy * pow(y.get(), 2.0 / 3) * 3};
  });
  CHECK(difference(slope(slope(y, z), z), {6, 48}, {DType::Float64, 8}) == "");
}

TEST_CASE("max pooling of channel blocks has a graph of its gradients", "[autograd][quick]") {
  manual_seed(5);
  const Tensor x = randn({2, 17, 6, 6}).set_requires_grad();
  const auto gradient_of = [&](Layout layout) {
    // Flattening needs strides, so the pool's gradient is laid out as its output.
    const Tensor y = flatten(max_pool2d(to_layout(x, layout), {.kernel = 2}), 1);
    const Tensor g = autograd::grad({sum(y * y * y)}, {x}, {.create_graph = true})[0];
    return to_vector<float>(autograd::grad({sum(square(g))}, {x})[0]);
  };
  CHECK(gradient_of(Layout::ChannelBlocked) == gradient_of(Layout::Strided));
}

TEST_CASE("what cannot be differentiated twice is refused by name", "[autograd][quick]") {
  const Tensor x = leaf({2, -1, 0.5});
  const auto refuses = [&](const char* text, auto backward) {
    for (const bool by_grad : {true, false})
      require_error<Error>(text, [&] {
        const Tensor y = sum(cube(x, backward));
        if (by_grad) return (void)autograd::grad({y}, {x}, {.create_graph = true});
        autograd::backward(y, {.create_graph = true});
      });
    CHECK(!x.grad());
    CHECK(to_vector<double>(slope(cube(x, backward), x, false)) == Values{12, 3, 0.75});
  };
  refuses(
      "cube: create_graph: it cannot be differentiated twice: it saves a tensor of shape [3] "
      "and does not say which input or output that is",
      [x = save(x)](const Tensor& dy) -> Gradients { return {dy * x.get() * x.get() * 3}; });
  const auto by_kernels = [x = save(x, 0)](const Tensor& dy) -> Gradients {
    const Tensor dx = empty_like(x.get());
    kernels::pow_backward(dx, dy, x.get(), 3);
    return {dx};
  };
  refuses(
      "cube: create_graph: it cannot be differentiated twice: its backward computes gradients "
      "by kernels, which nobody records",
      by_kernels);
  // It also holds if only dy has a history.
  const Tensor dy = leaf({1, 1, 1});
  const auto linear_by_kernels = [](const Tensor& dy) -> Gradients {
    const Tensor dx = empty_like(dy);
    kernels::affine(dx, dy, 2, 0);
    return {dx};
  };
  require_error<Error>("its backward computes gradients by kernels", [&] {
    const Tensor y = differentiable("twice", {x}, x.detach() * 2, linear_by_kernels);
    autograd::grad({y}, {x}, {.grad_outputs = {dy}, .create_graph = true});
  });
}

// Each of these had a history, of dy or of the other gradient, and so a part was lost unnoticed.
TEST_CASE("a closure that mixes kernels and operations loses no part unnoticed",
          "[autograd][quick]") {
  const Tensor x = leaf({2, -1, 0.5});
  const Tensor dy = leaf({1, 2, 3});
  const auto squared = [](const Tensor& x) {
    const Tensor y = empty_like(x);
    kernels::mul(y, x, x);
    return y;
  };
  const auto refuses = [&](auto backward) {
    CHECK(to_vector<double>(slope(cube(x, backward), x, false)) == Values{12, 3, 0.75});
    require_error<Error>(
        "cube: create_graph: it cannot be differentiated twice: its backward gives mul a tensor "
        "of shape [3] that the kernel mul computed of tensors with a history, which nobody records",
        [&] {
          autograd::grad({cube(x, backward)}, {x}, {.grad_outputs = {dy}, .create_graph = true});
        });
  };
  refuses([squared, x = save(x, 0)](const Tensor& dy) -> Gradients {
    return {dy * squared(x.get()) * 3};
  });
  // An operation between them records nothing.
  refuses([squared, x = save(x, 0)](const Tensor& dy) -> Gradients {
    return {dy * reshape(squared(x.get()) * 3, {1, 3})[0]};
  });
  // A kernel that changes an array in place.
  refuses([x = save(x, 0)](const Tensor& dy) -> Gradients {
    const Tensor square = full({3}, 3.0, {.dtype = DType::Float64});
    kernels::mul(square, square, x.get());
    kernels::mul(square, square, x.get());
    return {dy * square};
  });

  // One of two gradients.
  const Tensor a = leaf({2, 3});
  const Tensor b = leaf({5, 7});
  const Tensor product =
      differentiable("product", {a, b}, (a * b).detach(),
                     [a = save(a, 0), b = save(b, 1)](const Tensor& dy) -> Gradients {
                       const Tensor db = empty_like(dy);
                       kernels::mul(db, dy, a.get());
                       return {dy * b.get(), db};
                     });
  require_error<Error>(
      "product: create_graph: it cannot be differentiated twice: its backward returns a tensor of "
      "shape [2] that the kernel mul computed",
      [&] {
        autograd::grad({sum(product)}, {a, b}, {.create_graph = true});
      });

  // A result whose derivative is 0, and one that an operation of the user records.
  const auto second = [&](auto backward) {
    const Tensor first =
        autograd::grad({cube(x, backward)}, {x}, {.grad_outputs = {dy}, .create_graph = true})[0];
    return to_vector<double>(slope(first, x));
  };
  const Values want = {12, -12, 9};  // 6 dy x
  CHECK(second([squared, x = save(x, 0)](const Tensor& dy) -> Gradients {
          const Tensor one = squared(sign(x.get()).detach());
          return {dy * one * x.get() * x.get() * 3};
        }) == want);
  CHECK(second([squared, x = save(x, 0)](const Tensor& dy) -> Gradients {
          const Tensor square = differentiable(
              "squared", {x.get()}, squared(x.get()),
              [x = save(x.get(), 0)](const Tensor& g) -> Gradients { return {g * x.get() * 2}; });
          return {dy * square * 3};
        }) == want);
}

TEST_CASE("backward takes create_graph as its third argument, too", "[autograd][quick]") {
  const Tensor x = leaf({2, -1, 0.5});
  const Tensor y = sum(x * x * x);
  y.backward({}, false, true);
  CHECK(to_vector<double>(slope(x.grad(), x)) == Values{12, -6, 3});
  x.set_grad({});
  y.backward({}, true, false);  // the graph was retained
  CHECK(!x.grad().requires_grad());
  CHECK(to_vector<double>(x.grad()) == Values{12, 3, 0.75});
}

TEST_CASE("values and kernels are kept in a backward with create_graph, too", "[autograd][quick]") {
  const Tensor x = leaf({2});
  for (const bool create_graph : {false, true}) {
    const Tensor y = sum(pow(x, 3));
    const KernelProfile profile;
    slope(y, x, create_graph);
    CHECK(!profile.calls().empty());
  }
  const GraphValues values;
  std::ostringstream out;
  print_graph(out, slope(pow(x, 3), x), {{"x", x}});
  require_contains(out.str(), "pow [1] = 12 <- ");
}

TEST_CASE("gradients that backward leaves have a history, and nobody writes to them",
          "[autograd][quick]") {
  const Tensor x = leaf({2, -1, 0.5});
  autograd::backward(sum(x * x * x), {.create_graph = true});
  const Tensor first = x.grad();
  CHECK(first.requires_grad());
  CHECK(to_vector<double>(first) == Values{12, 3, 0.75});
  sum(first * first).backward();  // 2 · 3x² · 6x = 36 x³, added to 3x²
  CHECK(to_vector<double>(first) == Values{12, 3, 0.75});
  CHECK(to_vector<double>(x.grad()) == Values{12 + 288, 3 - 36, 0.75 + 4.5});
  CHECK(!x.grad().requires_grad());
  // Gradients that were there, and those of a tensor that is used twice.
  x.set_grad(ones({3}, {.dtype = DType::Float64}));
  const Tensor before = x.grad();
  autograd::backward(sum(x * x) + sum(x * 2), {.create_graph = true});
  CHECK(to_vector<double>(before) == Values{1, 1, 1});
  CHECK(to_vector<double>(x.grad()) == Values{7, 1, 4});
  CHECK(to_vector<double>(slope(x.grad(), x)) == Values{2, 2, 2});
  x.set_grad({});
}

TEST_CASE("a gradient that is retained inside has a history, too", "[autograd][quick]") {
  const Tensor x = leaf({2, -1, 0.5});
  const Tensor y = x * x;
  y.retain_grad();
  autograd::backward(sum(y * y), {.create_graph = true});
  CHECK(to_vector<double>(y.grad()) == Values{8, 2, 0.5});
  CHECK(to_vector<double>(slope(y.grad(), x)) == Values{8, -4, 2});  // 2 x² in x
  x.set_grad({});
}

TEST_CASE("hooks see gradients with their history, and what they give is differentiated",
          "[autograd][quick]") {
  const Tensor x = leaf({2, -1, 0.5});
  const Tensor y = x * x;
  auto hook = y.register_hook([](const Tensor& g) { return g * g; });
  const Tensor first = slope(y * y, x);  // (2 x²)² 2 x = 8 x⁵
  CHECK(to_vector<double>(first) == Values{256, -8, 0.25});
  hook.remove();  // which would see the gradients of the next pass, too
  CHECK(to_vector<double>(slope(first, x)) == Values{640, 40, 2.5});
}

TEST_CASE("zero_grad() and the optimizer take gradients with a history", "[autograd][quick]") {
  nn::Sequential net(nn::Linear(3, 4), nn::Tanh(), nn::Linear(4, 1));
  net.to(DType::Float64);
  optim::SGD optimizer(net.named_parameters(), {.lr = 0.5});
  const Tensor x = leaf({2, -1, 0.5});
  const auto loss = [&] { return sum(square(net(reshape(x, {1, 3})))); };
  std::vector<Values> plain;
  optimizer.zero_grad();
  loss().backward();
  for (const Tensor& p : net.parameters()) plain.push_back(to_vector<double>(p.grad()));
  for (const bool by_module : {true, false}) {
    by_module ? net.zero_grad() : optimizer.zero_grad();
    autograd::backward(loss(), {.create_graph = true});
    size_t i = 0;
    for (const Tensor& p : net.parameters()) {
      CHECK(p.grad().requires_grad());
      CHECK(difference(p.grad(), plain[i++], {DType::Float64, 16}) == "");
    }
  }
  const Values before = to_vector<double>(net.parameters()[0]);
  optimizer.step();
  const Values after = to_vector<double>(net.parameters()[0]);
  for (size_t i = 0; i < before.size(); ++i)
    CHECK(std::abs(after[i] - (before[i] - 0.5 * plain[0][i])) < 1e-14);
  for (const bool by_module : {true, false}) {
    autograd::backward(loss(), {.create_graph = true});
    by_module ? net.zero_grad() : optimizer.zero_grad();
    for (const Tensor& p : net.parameters()) {
      CHECK(!p.grad().requires_grad());
      CHECK(to_vector<double>(p.grad()) == Values(static_cast<size_t>(p.numel())));
    }
  }
  x.set_grad({});  // its history begins at x
}

// With a residual connection, whose gradient another operation would begin its sums with, and
// parameters whose gradients have a home in the arena.
TEST_CASE("a penalty's gradient is that without an arena", "[autograd][quick]") {
  const auto gradients = [](bool arena) {
    const Tensor w = tensor(std::vector<double>{0.5, -1, 2, 0.25}, {2, 2, 1, 1});
    w.set_requires_grad();
    optim::SGD optimizer(NamedTensors{{"w", w}}, {.lr = 0.1});
    if (arena) optimizer.zero_grad();
    const Tensor x = tensor(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 2, 2});
    x.set_requires_grad();
    const Tensor y = sum(square(x + tanh(conv2d(x * 0.1, w)) * conv2d(x, w)));
    const Tensor g = autograd::grad({y}, {x}, {.create_graph = true})[0];
    (y + sum(square(g)) * 0.1).backward();
    return to_vector<double>(w.grad());
  };
  CHECK(difference(gradients(true), gradients(false), {DType::Float64, 32}) == "");
}

TEST_CASE("second derivatives stay in the tensors' dtype under autocast", "[autograd][quick]") {
  const Tensor x = to(leaf({2, -1, 0.5, 1}), DType::Float32).detach();
  x.set_requires_grad();
  const Tensor w = full({3, 4}, 0.25);
  w.set_requires_grad();
  const AutocastGuard autocast;
  const Tensor y = to(linear(reshape(x, {1, 4}), w), DType::Float32);
  const Tensor first = autograd::grad({sum(y * y)}, {x}, {.create_graph = true})[0];
  sum(first * first).backward();
  CHECK(x.grad().dtype() == DType::Float32);
  CHECK(w.grad().dtype() == DType::Float32);
}

TEST_CASE("norms and deviations have the same gradient with a graph as without, at any size",
          "[autograd][quick]") {
  for (const double size : {1.0, 1e-10, 1e30, 1e200})
    for (const double p : {0.5, 1.0, 1.5, 2.0, 3.0, 40.0}) {
      INFO("numbers about " << size << ", p " << p);
      const Tensor x = leaf({0, size, -2 * size, size});
      const auto same = [&x](const Tensor& y) {
        const Tensor with_graph = slope(y, x);
        CHECK(difference(with_graph, to_vector<double>(slope(y, x, false)),
                         {DType::Float64, 1024}) == "");
      };
      same(norm(x, p));
      same(x.std());
      // The gradient is that of numbers about 1, whatever their unit.
      const Tensor one = leaf({0, 1, -2, 1});
      CHECK(difference(slope(norm(x, p), x), to_vector<double>(slope(norm(one, p), one, false)),
                       {DType::Float64, 1024}) == "");
    }
  const Tensor none = leaf({0, 0});
  for (const double p : {0.5, 1.0, 1.5, 2.0, 3.0})
    CHECK(to_vector<double>(slope(norm(none, p), none)) == Values{0, 0});
}

TEST_CASE("gradgradcheck finds a second derivative that is wrong", "[gradcheck][quick]") {
  const Tensor x = leaf({2, -1, 0.5});
  const auto check = [&](auto backward) {
    return gradgradcheck(
        [&](const std::vector<Tensor>& in) {
          return differentiable("cube", {in[0]}, (in[0] * in[0] * in[0]).detach(),
                                [backward, x = save(in[0], 0)](const Tensor& dy) -> Gradients {
                                  return {backward(dy, x.get())};
                                });
        },
        {x});
  };
  CHECK(check([](const Tensor& dy, const Tensor& x) { return dy * x * x * 3; }));
  // Right as a gradient, but a part of it is cut out of its graph.
  const auto wrong =
      check([](const Tensor& dy, const Tensor& x) { return dy * x * x.detach() * 3; });
  CHECK(!wrong);
  require_contains(wrong.message, "gradgradcheck of ");
}

// They have no rows among the op specs. What they are made of is differentiated, and so are they.
TEST_CASE("compositions are differentiated twice", "[gradcheck][quick]") {
  struct Composition {
    const char* name;
    std::vector<Shape> shapes;
    TensorFunction f;
  };
  using In = const std::vector<Tensor>&;
  const Tensor index = tensor<int64_t>({2, 0, 2});
  const std::vector<Composition> all = {
      {"attention",
       {{2, 3, 4}, {2, 5, 4}, {2, 5, 3}},
       [](In in) { return scaled_dot_product_attention(in[0], in[1], in[2]); }},
      {"causal attention",
       {{1, 4, 3}, {1, 4, 3}, {1, 4, 3}},
       [](In in) { return scaled_dot_product_attention(in[0], in[1], in[2], {}, 0, true); }},
      {"matmul of a vector", {{4}, {4, 3}}, [](In in) { return matmul(in[0], in[1]); }},
      {"matmul of batches", {{2, 1, 3, 4}, {3, 4, 2}}, [](In in) { return matmul(in[0], in[1]); }},
      {"einsum", {{3, 4}, {2, 4}}, [](In in) { return einsum("ij,kj->ki", in[0], in[1]); }},
      {"conv1d", {{2, 3, 6}, {4, 3, 3}, {4}}, [](In in) { return conv1d(in[0], in[1], in[2]); }},
      {"prod", {{3, 4}}, [](In in) { return prod(in[0], 1); }},
      {"cumprod", {{5}}, [](In in) { return cumprod(in[0], 0); }},
      {"embedding", {{4, 3}}, [&](In in) { return embedding(index, in[0]); }},
      {"index", {{4, 3}}, [&](In in) { return in[0].index({index}) * in[0].index({index}); }},
      {"flip and roll", {{4, 3}}, [](In in) { return roll(flip(in[0], 0), {1}, 1) * in[0]; }},
      {"reflected border",
       {{1, 1, 3, 3}},
       [](In in) {
         return square(pad(in[0], {1, 1, 1, 1}, PadMode::Reflect));
       }},
      {"upsample",
       {{1, 2, 2, 3}},
       [](In in) {
         return square(upsample(in[0], {4, 5}));
       }},
      {"unfold", {{1, 2, 4, 4}}, [](In in) { return square(unfold(in[0], {.kernel = 2})); }},
      {"instance_norm",
       {{2, 3, 4}, {3}, {3}},
       [](In in) { return instance_norm(in[0], in[1], in[2]); }},
      {"normalize", {{3, 4}}, [](In in) { return normalize(in[0]); }},
      {"cosine_similarity",
       {{3, 4}, {3, 4}},
       [](In in) { return cosine_similarity(in[0], in[1], 1); }},
      {"kl_div", {{3, 4}}, [](In in) { return kl_div(log_softmax(in[0], 1), softmax(in[0], 1)); }},
      {"smooth_l1_loss", {{3, 4}, {3, 4}}, [](In in) { return smooth_l1_loss(in[0], in[1], 0.3); }},
      {"triplet_margin_loss",
       {{3, 4}, {3, 4}, {3, 4}},
       [](In in) { return triplet_margin_loss(in[0], in[1], in[2], {}); }},
      {"probabilities as targets",
       {{3, 4}},
       [](In in) { return cross_entropy(in[0], softmax(in[0] * 2, 1)); }},
      {"glu, selu, softsign",
       {{3, 4}},
       [](In in) { return glu(selu(in[0]), 1) + softsign(glu(in[0], 1)); }},
      {"in place",
       {{3, 4}},
       [](In in) {
         Tensor y = in[0] * 2;
         y *= in[0];
         y.sigmoid_();
         return y;
       }},
  };
  uint32_t seed = 1;
  for (const auto& [name, shapes, f] : all) {
    INFO(name);
    std::vector<Tensor> inputs;
    for (const Shape& shape : shapes) {
      inputs.push_back(random_tensor(shape, DType::Float64, seed++));
      inputs.back().set_requires_grad();
    }
    const auto result = gradgradcheck(f, inputs, {.step = 1e-5});
    INFO(result.message);
    CHECK(result.passed);
  }
}

TEST_CASE("rows that a loss ignores have derivatives of 0, whatever they hold",
          "[autograd][quick]") {
  const float inf = INFINITY;
  const Tensor x =
      tensor<float>({-inf, -inf, -inf, -inf, 0, 1, 1, 2, 3, NAN, 0, 0, inf, 1, 2}, {5, 3})
          .requires_grad_();
  const Tensor target = tensor<int64_t>({-100, -100, 2, -100, -100});
  for (const Reduction reduction : {Reduction::Mean, Reduction::Sum, Reduction::None})
    for (const double smoothing : {0., 0.1}) {
      const Tensor loss =
          cross_entropy(x, target, {.label_smoothing = smoothing, .reduction = reduction});
      const Tensor plain = slope(loss, x, false);
      const Tensor loss_again =
          cross_entropy(x, target, {.label_smoothing = smoothing, .reduction = reduction});
      const Tensor g = slope(loss_again, x);
      CHECK(difference(g, to_vector<double>(plain), {DType::Float32, 3}) == "");
      const Tensor second = autograd::grad({sum(g * g)}, {x})[0];
      for (int64_t row = 0; row < 5; ++row) {
        const std::vector<float> values = to_vector<float>(second[row]);
        CHECK((values == std::vector<float>{0, 0, 0}) == (row != 2));
      }
    }
}

}  // namespace ringgrad::test::second_derivatives_test
