#include "ringgrad/autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/grad.h"
#include "ringgrad/autograd/graph.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"

namespace ringgrad {
namespace {

// Weights v in ±[0.5, 1.5). None is so small that it could hide an error.
std::vector<double> random_weights(int64_t n) {
  std::vector<double> weights(n);
  for (int64_t i = 0; i < n; ++i) {
    const PhiloxBlock block = philox(0x9e3779b9, i);
    weights[i] = (0.5 + uniform_from(block.word[0])) * (block.word[1] & 1 ? 1 : -1);
  }
  return weights;
}

double weighted_sum(const std::vector<double>& weights, const Tensor& y) {
  const std::vector<double> values = to_vector<double>(y);
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += weights[i] * values[i];
  return sum;
}

// Restores the values of x at the end.
class ValuesAside {
 public:
  ValuesAside(const Tensor& x, const std::vector<double>& values)
      : x_(x), values_(tensor(values, x.shape())) {}
  ~ValuesAside() { copy_(x_, values_); }
  ValuesAside(const ValuesAside&) = delete;

 private:
  const Tensor& x_;
  const Tensor values_;
};

// Clears the gradients of the inputs and restores them at the end.
class GradientsAside {
 public:
  explicit GradientsAside(const std::vector<Tensor>& inputs) : inputs_(inputs) {
    for (const Tensor& x : inputs_) {
      grads_.push_back(x.grad());
      if (x.requires_grad()) x.set_grad({});
    }
  }
  ~GradientsAside() {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].requires_grad()) autograd_meta(inputs_[i]).grad = grads_[i];
  }
  GradientsAside(const GradientsAside&) = delete;

 private:
  const std::vector<Tensor>& inputs_;
  std::vector<Tensor> grads_;
};

GradcheckResult check(const char* title, const TensorFunction& f, const std::vector<Tensor>& inputs,
                      const GradcheckOptions& options) {
  for (const Tensor& x : inputs) {
    if (x.requires_grad() && x.dtype() != DType::Float64)
      throw_unsupported_dtype("gradcheck", x.dtype(),
                              "float64: differences of other dtypes are mostly rounding");
  }
  const GradientsAside aside(inputs);
  const Tensor y = f(inputs);
  CHECK(y.requires_grad(), "gradcheck: the result does not depend on any input that requires grad");
  const char* const name = y.is_leaf() ? "identity" : y.autograd_meta()->grad_fn->name;
  const std::vector<double> weights = random_weights(y.numel());
  y.backward(tensor(weights, y.shape(), y.device()));

  NoGradGuard no_grad;
  GradcheckResult result{.passed = true, .worst = 0, .message = {}};
  for (size_t input = 0; input < inputs.size(); ++input) {
    const Tensor& x = inputs[input];
    if (!x.requires_grad()) continue;
    const Tensor grad = x.grad();
    const std::vector<double> analytic =
        grad ? to_vector<double>(grad) : std::vector<double>(x.numel());
    const std::vector<double> values = to_vector<double>(x);
    std::vector<double> moved = values;
    const ValuesAside restored(x, values);
    const auto f_at = [&](size_t i, double value) {
      moved[i] = value;
      copy_(x, tensor(moved, x.shape()));
      return weighted_sum(weights, f(inputs));
    };
    for (size_t i = 0; i < values.size(); ++i) {
      const double up = f_at(i, values[i] + options.step);
      const double down = f_at(i, values[i] - options.step);
      moved[i] = values[i];
      const double numeric = (up - down) / (2 * options.step);
      const double error = std::abs(analytic[i] - numeric) /
                           std::max({1.0, std::abs(analytic[i]), std::abs(numeric)});
      if (!(error <= result.worst) && !std::isnan(result.worst)) {
        result.worst = error;
        result.message =
            str(title, " of ", name, ": input ", input, " of shape ", x.shape(), ", element ", i,
                ": backward gives ", analytic[i], ", central differences ", numeric,
                ", relative error ", error, ", tolerance ", options.tolerance);
      }
    }
  }
  result.passed = result.worst <= options.tolerance;  // false for NaN
  return result;
}

}  // namespace

GradcheckResult gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options) {
  return check("gradcheck", f, inputs, options);
}

GradcheckResult gradgradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                              const GradcheckOptions& options) {
  const auto first = [&](const std::vector<Tensor>& all) {
    const GradModeGuard grad_mode(true);
    const std::vector<Tensor> in(all.begin(), all.end() - 1);
    std::vector<Tensor> wanted;
    for (const Tensor& x : in)
      if (x.requires_grad()) wanted.push_back(x);
    const Tensor y = f(in);
    CHECK(y.requires_grad(),
          "gradgradcheck: the result does not depend on any input that requires grad");
    std::vector<Tensor> rows;
    for (const Tensor& g :
         autograd::grad({y}, wanted,
                        {.grad_outputs = {all.back()}, .create_graph = true, .allow_unused = true}))
      if (g) rows.push_back(reshape(g, {g.numel()}));
    return cat(rows, 0);
  };
  std::vector<Tensor> all = inputs;
  {
    NoGradGuard no_grad;
    const Tensor y = f(inputs);
    all.push_back(tensor(random_weights(y.numel()), y.shape(), y.device()));
  }
  all.back().set_requires_grad();
  return check("gradgradcheck", first, all, options);
}

}  // namespace ringgrad
