// What backward() can be asked for beside gradients in leaves: another pass, gradients of inputs, hooks on the way.
#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/grad_hooks.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

using Values = std::vector<double>;
Values values(const Tensor& x) { return to_vector<double>(x); }
Tensor leaf() { return tensor<double>({1, 2, 3}).requires_grad_(); }

}  // namespace

TEST_CASE("a retained graph gives its gradients again, one that was not says how", "[quick]") {
  const Tensor x = leaf(), loss = (x * x).sum();
  loss.backward({}, true);
  loss.backward({}, true);
  CHECK(values(x.grad()) == Values{4, 8, 12});
  loss.backward();
  CHECK(values(x.grad()) == Values{6, 12, 18});
  require_error<Error>("retain the graph: backward({}, true)", [&] { loss.backward(); });
}

TEST_CASE("grad() gives the gradients of inputs, leaves or not, and leaves alone what it was not asked for",
          "[quick]") {
  const Tensor x = leaf(), w = leaf();
  const Tensor h = x * w, y = (h * h).sum(), z = h.sum();
  const auto gradients = autograd::grad({y, z}, {x, h}, {.retain_graph = true});
  CHECK(values(gradients[0]) == Values{3, 18, 57});  // (2 h + 1) w
  CHECK(values(gradients[1]) == Values{3, 9, 19});
  CHECK(!x.grad());
  CHECK(!w.grad());
  CHECK(values(autograd::grad({z}, {w}, {.grad_outputs = {full({}, 2, {.dtype = DType::Float64})}})[0]) ==
        Values{2, 4, 6});
  const Tensor unused = leaf();
  require_error<Error>("grad: the outputs do not depend on input 0",
                       [&] { autograd::grad({(x * x).sum()}, {unused}); });
  CHECK(!autograd::grad({(x * x).sum()}, {unused}, {.allow_unused = true})[0]);
  require_error<Error>("grad: create_graph asks for derivatives of derivatives",
                       [&] { autograd::grad({(x * x).sum()}, {x}, {.create_graph = true}); });
}

TEST_CASE("a hook sees a gradient on its way, may replace it, and stays until it is removed", "[quick]") {
  const Tensor x = leaf();
  std::vector<Values> seen;
  const Tensor h = x * 2;
  h.register_hook([&](const Tensor& grad) {  // the handle is not kept
    seen.push_back(values(grad));
    return grad * 10;
  });
  GradHookHandle of_leaf = x.register_hook([&](const Tensor& grad) {
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
  require_error<Error>("register_hook: a hook returned a gradient of shape [2]", [&] { k.sum().backward(); });
}

TEST_CASE("retain_grad() leaves the gradient in a tensor that is no leaf", "[quick]") {
  const Tensor x = leaf(), h = x * 2;
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
  require_error<Error>("retain_grad: the tensor of shape [1] gets no gradient", [] { zeros({1}).retain_grad(); });
}

TEST_CASE("under autocast products are taken in 16 bits, and parameters and losses stay float32", "[quick]") {
  const Tensor x = ones({2, 3}), w = full({4, 3}, 1.0 / 3).requires_grad_();
  Tensor y, loss;
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
  require_error<DTypeError>("AutocastGuard: dtype float64", [] { AutocastGuard wide(DType::Float64); });
}
