// Derivatives, as PyTorch's autograd example shows them: backward(), a product with a Jacobian,
// what is tracked and what not, the derivative of a derivative, an operation of one's own. The
// numbers expected are those that PyTorch prints.
#include <cmath>
#include <cstdio>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

static int differing = 0;

static void expect(const char* what, const Tensor& actual, const std::vector<float>& expected) {
  const std::vector<float> values = to_vector<float>(actual);
  bool equal = values.size() == expected.size();
  for (size_t i = 0; equal && i < values.size(); ++i)
    equal = std::abs(values[i] - expected[i]) <= 1e-5f * std::max(1.0f, std::abs(expected[i]));
  std::printf("%-28s %s\n", what, equal ? "as PyTorch" : str("is ", actual).c_str());
  differing += !equal;
}

static void basics() {
  const Tensor x = ones({2, 2}).requires_grad_();
  const Tensor y = x + 2;
  (y * y * 3).mean().backward();
  expect("mean of 3 (x + 2)²", x.grad(), {4.5, 4.5, 4.5, 4.5});

  Tensor a = linspace(-1, 0.5, 4).view({2, 2});
  a = (a * 3) / (a - 1);
  differing += a.requires_grad();
  a.requires_grad_();
  const Tensor b = (a * a).sum();
  differing += b.grad_fn() == nullptr || !b.requires_grad();
  b.backward();
  expect("sum of a²", a.grad(), {3, 2, 0, -6});
}

// A vector times the Jacobian of a function that doubles x until it is long.
static void vector_jacobian() {
  const Tensor x = tensor<float>({0.5, -1.25, 2}).requires_grad_();
  Tensor y = x * 2;
  while (y.norm().item<double>() < 1000) y = y * 2;
  y.backward(tensor<float>({0.1f, 1, 0.0001f}));
  expect("vector-Jacobian product", x.grad(), {51.2f, 512, 0.0512f});
  {
    NoGradGuard no_grad;
    differing += x.pow(2).requires_grad();
  }
  const Tensor detached = x.detach();
  differing += detached.requires_grad() || !x.eq(detached).all().item<bool>();
}

// A hook sees a gradient on its way, and may change it; retain_grad() keeps one that is not a
// leaf's.
static void hooks() {
  const Tensor x = tensor<float>({1, 2, 3}).requires_grad_();
  const Tensor y = x.pow(2);
  y.retain_grad();
  y.register_hook([](const Tensor& grad) { return grad * 10; });
  y.sum().backward();
  expect("gradient after the hook", y.grad(), {10, 10, 10});
  expect("gradient before it", x.grad(), {20, 40, 60});
}

// A loss with a penalty on how steep it is, which needs the gradient's own gradient.
static void gradient_penalty() {
  const Tensor w = linspace(-0.5, 0.6, 12).view({3, 4}).requires_grad_();
  const Tensor b = tensor<float>({0.1f, -0.2f, 0.3f}).requires_grad_();
  const Tensor x = linspace(0, 1.1, 12).view({3, 4}).requires_grad_();
  const Tensor target = linspace(1, -0.6, 9).view({3, 3});
  const Tensor loss = mse_loss(linear(x, w, b), target);
  const Tensor slope = autograd::grad({loss}, {x}, {.create_graph = true})[0];
  (loss + (slope.norm(2, 1) - 1).pow(2).mean()).backward();
  expect("gradient of loss + penalty", w.grad(),
         {-0.0560031f, -0.1349044f, -0.2138056f, -0.2927068f, 0.1393404f, 0.0936405f, 0.0479405f,
          0.0022405f, 0.4236450f, 0.4857354f, 0.5478259f, 0.6099163f});
}

// y = x wᵀ + b with a backward of one's own.
static Tensor my_linear(const Tensor& x, const Tensor& w, const Tensor& b) {
  Tensor y;
  {
    NoGradGuard no_grad;  // what the closure replaces
    y = x.mm(w.t()) + b;
  }
  return differentiable("my_linear", {x, w, b}, y,
                        [x = save(x, 0), w = save(w, 1)](const Tensor& dy) -> Gradients {
                          return {dy.mm(w.get()), dy.t().mm(x.get()), dy.sum(0)};
                        });
}

static void own_operation() {
  const Tensor x = linspace(-1, 1, 6).view({2, 3}).requires_grad_();
  const Tensor w = linspace(0, 1.1, 12).view({4, 3}).requires_grad_();
  const Tensor b = zeros({4}).requires_grad_();
  my_linear(x, w, b).sum().backward();
  expect("x of an own operation", x.grad(), {1.8f, 2.2f, 2.6f, 1.8f, 2.2f, 2.6f});
  expect("w of an own operation", w.grad(),
         {-0.8f, 0, 0.8f, -0.8f, 0, 0.8f, -0.8f, 0, 0.8f, -0.8f, 0, 0.8f});
  expect("b of an own operation", b.grad(), {2, 2, 2, 2});
}

int main() {
  basics();
  vector_jacobian();
  hooks();
  gradient_penalty();
  own_operation();
  return differing == 0 ? 0 : 1;
}
