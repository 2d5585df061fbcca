// The exercise on backward: the gradients of a linear layer.
#include <cmath>

#include <fmt/format.h>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/program/learn/grading.h"
#include "ringgrad/program/learn/learn.h"
#include "ringgrad/program/learn/learners_code.h"

namespace ringgrad::program {
namespace backward_exercise {
namespace {

using Linear = decltype(linear);

struct Layer {
  // [N, in], [out, in], [out]
  Tensor x;
  Tensor w;
  Tensor b;
};

Layer layer_of(int64_t n, int64_t in, int64_t out, DType dtype) {
  const auto filled = [&](const Shape& shape, double step) {
    Tensor x = empty(shape, {.dtype = DType::Float64});
    for (int64_t i = 0; i < x.numel(); ++i)
      x.data<double>()[i] = std::sin(static_cast<double>(i + 1) * step);
    return x.to(dtype);
  };
  return {filled({n, in}, 0.7), filled({out, in}, 1.3), filled({out}, 2.1)};
}

std::vector<double> numbers(const Tensor& x) { return to_vector<double>(x.to(DType::Float64)); }

// The loss Σ (i+1) · y_i, whose dy has another number at each place.
Tensor loss_of(Linear* linear, const Layer& layer) {
  const Tensor y = linear(layer.x, layer.w, layer.b);
  Tensor factors = empty(y.shape(), {.dtype = DType::Float64});
  for (int64_t i = 0; i < y.numel(); ++i)
    factors.data<double>()[i] = static_cast<double>(i % 7) - 2.5;
  return sum(mul(y, factors.to(y.dtype())));
}

void compare(const char* name, const Tensor& got, const std::vector<double>& want,
             const Shape& shape, double tolerance) {
  if (!got.defined()) throw Wrong(fmt::format("{} was wanted, and is undefined", name));
  if (got.shape() != shape)
    throw Wrong(str(name, " has shape ", got.shape(), ", expected ", shape));
  const auto values = numbers(got);
  for (size_t i = 0; i < want.size(); ++i)
    if (!(std::abs(values[i] - want[i]) <= tolerance * std::max(1.0, std::abs(want[i]))))
      throw Wrong(fmt::format("{}[{}] of shape {} is {:.6g}, expected {:.6g}", name, i, str(shape),
                              values[i], want[i]));
}

// Compares with three loops in double precision.
void check_gradients(Linear* linear, int64_t n, int64_t in, int64_t out, DType dtype,
                     double tolerance) {
  const Layer layer = layer_of(n, in, out, dtype);
  for (const Tensor* leaf : {&layer.x, &layer.w, &layer.b}) leaf->set_requires_grad(true);
  loss_of(linear, layer).backward();
  const auto x = numbers(layer.x);
  const auto w = numbers(layer.w);
  std::vector<double> dx(x.size());
  std::vector<double> dw(w.size());
  std::vector<double> db(static_cast<size_t>(out));
  for (int64_t row = 0; row < n; ++row)
    for (int64_t o = 0; o < out; ++o) {
      const double dy = static_cast<double>((row * out + o) % 7) - 2.5;
      db[o] += dy;
      for (int64_t i = 0; i < in; ++i) {
        dx[row * in + i] += dy * w[o * in + i];
        dw[o * in + i] += dy * x[row * in + i];
      }
    }
  compare("dx", layer.x.grad(), dx, {n, in}, tolerance);
  compare("dw", layer.w.grad(), dw, {out, in}, tolerance);
  compare("db", layer.b.grad(), db, {out}, tolerance);
}

// Compares the gradient with the change of the loss after a small change of one number.
void check_by_differences(Linear* linear) {
  const Layer layer = layer_of(2, 3, 4, DType::Float64);
  layer.w.set_requires_grad(true);
  loss_of(linear, layer).backward();
  const auto gradient = numbers(layer.w.grad());
  const NoGradGuard no_grad;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const auto moved = [&](double by) {
      Layer other = layer;
      other.w = tensor(numbers(layer.w)).reshape(layer.w.shape());
      other.w.data<double>()[i] += by;
      return loss_of(linear, other).item<double>();
    };
    const double slope = (moved(1e-4) - moved(-1e-4)) / 2e-4;
    if (std::abs(slope - gradient[i]) > 1e-6)
      throw Wrong(fmt::format(
          "when w[{}] grows by a little ε, the loss grows by {:.6f} · ε, and dw[{}] is {:.6f}", i,
          slope, i, gradient[i]));
  }
}

// Only one of the three inputs wants a gradient. What the others would need was not saved.
void check_one_wanted(Linear* linear) {
  for (int wanted = 0; wanted < 3; ++wanted) {
    const char* const names[] = {"x", "w", "b"};
    const Layer layer = layer_of(5, 3, 2, DType::Float32);
    const Tensor* const leaves[] = {&layer.x, &layer.w, &layer.b};
    leaves[wanted]->set_requires_grad(true);
    try {
      loss_of(linear, layer).backward();
    } catch (const std::exception& error) {
      throw Wrong(
          fmt::format("only {} requires a gradient; backward threw: {}\nWhat is saved is only what "
                      "the wanted gradients need: an empty SavedTensor stands for the rest.",
                      names[wanted], error.what()));
    }
    if (!leaves[wanted]->grad().defined())
      throw Wrong(fmt::format("only {} requires a gradient, and has none", names[wanted]));
  }
}

void grade(Grading& grading, const LearnersCode& code) {
  Linear* const learners = code.instead_of(&linear);
  grading.check("a layer of 3 inputs and 2 outputs, 4 samples",
                [=] { check_gradients(learners, 4, 3, 2, DType::Float64, 1e-12); });
  grading.check("as many inputs as outputs, where shapes tell nothing",
                [=] { check_gradients(learners, 3, 3, 3, DType::Float64, 1e-12); });
  grading.check("against what happens when a weight changes a little",
                [=] { check_by_differences(learners); });
  grading.check("a wider layer in float32 and bfloat16", [=] {
    check_gradients(learners, 32, 70, 33, DType::Float32, 1e-4);
    check_gradients(learners, 8, 16, 8, DType::BFloat16, 0.05);
  });
  grading.check("no bias, or only one gradient is wanted", [=] {
    Layer layer = layer_of(4, 3, 2, DType::Float32);
    layer.b = {};
    layer.w.set_requires_grad(true);
    loss_of(learners, layer).backward();
    check_one_wanted(learners);
  });
}

}  // namespace
}  // namespace backward_exercise

const Exercise exercises::kBackward = {
    .name = "backward of a linear layer",
    .source = "autograd/ops/linear.cpp",
    .blanks = {"Gradients linear_backward("},
    .task =
        R"(
y = x · wᵀ + b, with x [N, in], w [out, in] and b [out]. Backward has dy [N, out], the derivative of the loss by
each number of y, and returns those by x, w and b, in the shapes of x, w and b: write down what one number of y is,
ask which numbers of y one number of w has gone into, and add up.

A gradient that nobody wants is undefined, `Tensor()`, and what only it would need was not saved: x is there where
dw is wanted, w where dx is. matrix_product() and swapped_matrix() stand above; sum_to(dy, {dy.size(1)}) adds up its rows. dw is
best written to home.claim(), its place in the bucket, which saves a copy, and which may be undefined.)",
    .grade = backward_exercise::grade,
};

}  // namespace ringgrad::program
