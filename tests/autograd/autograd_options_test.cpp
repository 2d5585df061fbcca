// Options of backward(): another pass, gradients of inputs, hooks on the way.
#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/grad.h"
#include "ringgrad/autograd/grad_hooks.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::autograd_options_test {

namespace {

using Values = std::vector<double>;
Values values(const Tensor& x) { return to_vector<double>(x); }
Tensor leaf() { return tensor<double>({1, 2, 3}).requires_grad_(); }

}  // namespace

TEST_CASE("a retained graph gives its gradients again, one that was not says how", "[quick]") {
  const Tensor x = leaf();
  const Tensor loss = (x * x).sum();
  loss.backward({}, true);
  loss.backward({}, true);
  CHECK(values(x.grad()) == Values{4, 8, 12});
  loss.backward();
  CHECK(values(x.grad()) == Values{6, 12, 18});
  require_error<Error>("retain the graph: backward({}, true)", [&] { loss.backward(); });
}

TEST_CASE(
    "grad() gives the gradients of inputs, leaves or not, "
    "and leaves alone what it was not asked for",
    "[quick]") {
  const Tensor x = leaf();
  const Tensor w = leaf();
  const Tensor h = x * w;
  const Tensor y = (h * h).sum();
  const Tensor z = h.sum();
  const auto gradients = autograd::grad({y, z}, {x, h}, {.retain_graph = true});
  CHECK(values(gradients[0]) == Values{3, 18, 57});  // (2 h + 1) w
  CHECK(values(gradients[1]) == Values{3, 9, 19});
  CHECK(!x.grad());
  CHECK(!w.grad());
  CHECK(values(autograd::grad({z}, {w},
                              {.grad_outputs = {full({}, 2, {.dtype = DType::Float64})}})[0]) ==
        Values{2, 4, 6});
  const Tensor unused = leaf();
  require_error<Error>("grad: the outputs do not depend on input 0",
                       [&] { autograd::grad({(x * x).sum()}, {unused}); });
  CHECK(!autograd::grad({(x * x).sum()}, {unused}, {.allow_unused = true})[0]);
}

TEST_CASE("grad() refuses what has no gradient", "[quick]") {
  const Tensor x = leaf();
  const Tensor y = (x * x).sum();
  const auto refused = [](const std::string& text, const std::vector<Tensor>& outputs,
                          const std::vector<Tensor>& inputs,
                          const autograd::GradOptions& options = {}) {
    require_error<Error>(text, [&] { autograd::grad(outputs, inputs, options); });
  };
  refused("grad: 0 outputs and 1 inputs, expected at least one of each", {}, {x});
  refused("grad: 1 outputs and 0 inputs, expected at least one of each", {y}, {});
  refused("grad: 2 gradients for 1 outputs, expected one for each", {y}, {x},
          {.grad_outputs = {ones({}), ones({})}});
  refused("grad: input 1 requires no gradient", {y}, {x, zeros({3})});
  refused("grad: input 0 requires no gradient", {y}, {Tensor()});
}

TEST_CASE("a hook sees a gradient on its way, may replace it, and stays until it is removed",
          "[quick]") {
  const Tensor x = leaf();
  std::vector<Values> seen;
  const Tensor h = x * 2;
  h.register_hook([&](const Tensor& grad) {  // the handle is not kept
    seen.push_back(values(grad));
    return grad * 10;
  });
  HookHandle of_leaf = x.register_hook([&](const Tensor& grad) {
    seen.push_back(values(grad));
    return Tensor();
  });
  (h * h).sum().backward();
  CHECK(seen == std::vector<Values>{{4, 8, 12}, {80, 160, 240}});
  CHECK(values(x.grad()) == Values{80, 160, 240});
  of_leaf.remove();
  (x * 3).sum().backward();
  CHECK(seen.size() == 2);
  require_error<Error>("register_hook: the tensor of shape [1] gets no gradient",
                       [] { zeros({1}).register_hook([](const Tensor&) { return Tensor(); }); });
  const Tensor k = x * 2;
  k.register_hook([](const Tensor&) { return zeros({2}); });
  require_error<ShapeError>("a hook of register_hook: the gradient has shape [2]",
                            [&] { k.sum().backward(); });
}

TEST_CASE("retain_grad() leaves the gradient in a tensor that is no leaf", "[quick]") {
  const Tensor x = leaf();
  const Tensor h = x * 2;
  h.retain_grad();
  (h * h).sum().backward({}, true);
  CHECK(values(h.grad()) == Values{4, 8, 12});
  CHECK(values(x.grad()) == Values{8, 16, 24});

  // As in PyTorch: after all hooks, also those that come later; once, however often it is called.
  const Tensor k = x * 2;
  k.retain_grad();
  k.retain_grad();
  k.register_hook([](const Tensor& grad) { return grad * 10; });
  k.sum().backward();
  CHECK(values(k.grad()) == Values{10, 10, 10});
  require_error<Error>("retain_grad: the tensor of shape [1] gets no gradient",
                       [] { zeros({1}).retain_grad(); });
}

TEST_CASE("under autocast products are taken in 16 bits, and parameters and losses stay float32",
          "[quick]") {
  const Tensor x = ones({2, 3});
  const Tensor w = full({4, 3}, 1.0 / 3).requires_grad_();
  Tensor y;
  Tensor loss;
  {
    AutocastGuard autocast;
    y = linear(x, w);
    loss = mse_loss(y, zeros({2, 4}));
  }
  CHECK(y.dtype() == DType::BFloat16);
  CHECK(loss.dtype() == DType::Float32);
  CHECK(matmul(x, x.t()).dtype() == DType::Float32);  // behind it
  loss.backward();
  CHECK(w.grad().dtype() == DType::Float32);
  CHECK(std::abs(w.grad()[0][0].item<double>() - 0.5) < 0.01);
  require_error<DTypeError>("AutocastGuard: dtype float64",
                            [] { AutocastGuard wide(DType::Float64); });
}

TEST_CASE("a tracked write in place keeps the gradient that a tensor retains, of its new value",
          "[quick]") {
  const Tensor x = leaf();
  const Tensor h = x * 2;
  h.retain_grad();
  Values of_old_value;
  h.register_hook([&](const Tensor& grad) {
    of_old_value = values(grad);
    return Tensor();
  });
  h.sum().backward({}, true);
  h *= x;
  CHECK(values(h.grad()) == Values{1, 1, 1});  // as in PyTorch, what is there stays
  (h * 5).sum().backward();
  CHECK(values(h.grad()) == Values{6, 6, 6});
  CHECK(of_old_value == Values{5, 10, 15});
  // 2 from the first pass, 5 · 2 · 2 x from the second.
  CHECK(values(x.grad()) == Values{22, 42, 62});
}

TEST_CASE("no write in place goes to a leaf that requires a gradient, but under a NoGradGuard",
          "[quick]") {
  const Tensor x = leaf();
  const Tensor y = tensor<double>({4, 5, 6});
  const std::vector<std::function<void()>> writes = {
      [&] { x.fill_(1); },     [&] { x.zero_(); },   [&] { x.copy_(y); },
      [&] { x += y; },         [&] { x -= 1; },      [&] { x.mul_(2); },
      [&] { x.clamp_(0, 1); }, [&] { x.add_(y); },   [&] { x.masked_fill_(y > 4, 0); },
      [&] { x /= y; },         [&] { x[0] = 1.0; },  [&] { x.index_put_({0}, 3); },
      [&] { x[0].zero_(); },   [&] { x[0] = y[0]; },
  };
  for (const auto& write : writes) {
    CHECK_THROWS_AS(write(), Error);
    CHECK(values(x) == Values{1, 2, 3});
  }
  require_error<Error>(
      "is a leaf that requires a gradient, which would be lost; write to it under a NoGradGuard",
      [&] { x.zero_(); });
  {
    const NoGradGuard no_grad;
    for (const auto& write : writes) write();
  }
  CHECK(values(x) != Values{1, 2, 3});
  CHECK(x.requires_grad());
}

TEST_CASE("autograd::grad runs what lies between outputs and inputs, and nothing else", "[quick]") {
  const Tensor a = leaf();
  const Tensor b = leaf();
  const Tensor h = a * 2;
  const Tensor k = exp(b);
  int hooks = 0;
  for (const Tensor& x : {b, k})
    x.register_hook([&](const Tensor&) {
      ++hooks;
      return Tensor();
    });
  const HookHandle handle = register_post_accumulate_grad_hook(b, [&](const Tensor&) { ++hooks; });
  const Tensor loss = (h * k).sum();
  // An input may be an output, lie on the way to another input, occur twice, or not be reached.
  const auto gradients = autograd::grad({loss}, {h, a, a, loss}, {.retain_graph = true});
  const Values e = values(k);
  const Values twice = values(k * 2);
  CHECK(values(gradients[0]) == e);
  CHECK(values(gradients[1]) == twice);
  CHECK(values(gradients[2]) == twice);
  CHECK(values(gradients[3]) == Values{1});
  CHECK_FALSE(
      autograd::grad({loss}, {leaf()}, {.retain_graph = true, .allow_unused = true})[0].defined());
  CHECK(hooks == 0);
  CHECK_FALSE(b.grad().defined());
  (void)autograd::grad({loss}, {a});
  k.sum().backward();  // exp was not run, so its graph is still there
  CHECK(values(b.grad()) == e);
  CHECK(hooks == 3);
}

TEST_CASE("after a hook that throws, the same graph gives whole gradients", "[quick]") {
  const Tensor x = leaf();
  const Tensor h = x * 2;
  bool fails = true;
  h.register_hook([&](const Tensor&) -> Tensor {
    if (fails) throw Error("no");
    return {};
  });
  const Tensor loss = (h * h + x).sum();
  CHECK_THROWS_AS(loss.backward({}, true), Error);
  fails = false;
  x.set_grad({});
  loss.backward();
  CHECK(values(x.grad()) == Values{9, 17, 25});
}

}  // namespace ringgrad::test::autograd_options_test
