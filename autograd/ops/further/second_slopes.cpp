#include "ringgrad/autograd/ops/further/second_slopes.h"

#include <string_view>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad {
namespace {

using Numbers = std::vector<double>;

Tensor none(const Tensor&, const Numbers&) { return {}; }

// An exponent of none is sqrt's, which saves y.
Tensor of_power(const Tensor& x, const Numbers& exponent) {
  if (exponent.empty()) return mul(pow(x, -2), -0.5);
  const double e = exponent[0];
  if (e == 0 || e == 1) return {};
  return e == 2 ? full_like(x, 2) : mul(pow(x, e - 2), e * (e - 1));
}

Tensor of_elu(const Tensor& x, const Numbers& alpha) {
  return where(x > 0, 0, mul(exp(clamp_max(x, 0)), alpha[0]));
}

Tensor of_softplus(const Tensor& x, const Numbers& beta) {
  const Tensor part = sigmoid(mul(x, beta[0]));
  return mul(mul(part, 1 - part), beta[0]);
}

// φ(x) (2 - x²).
Tensor of_gelu(const Tensor& x, const Numbers&) {
  const Tensor squares = square(x);
  return mul(mul(exp(mul(squares, -0.5)), 0.39894228040143267794), 2 - squares);
}

Tensor of_silu(const Tensor& x, const Numbers&) {
  const Tensor part = sigmoid(x);
  return mul(mul(part, 1 - part), add(mul(x, 1 - 2 * part), 2));
}

// The function is x L(u(x)) with the logistic function L, so this is 2 L'u' + x (L''u'² + L'u'').
Tensor of_gelu_tanh(const Tensor& x, const Numbers&) {
  constexpr double kScale = 1.5957691216057308;
  const Tensor near = clamp(x, -20, 20);  // beyond, all parts vanish
  const Tensor squares = square(near);
  const Tensor part = sigmoid(mul(mul(near, add(mul(squares, 0.044715), 1)), kScale));
  const Tensor slope = mul(part, 1 - part);
  const Tensor first = mul(add(mul(squares, 0.134145), 1), kScale);
  const Tensor second = mul(near, 2 * 0.134145 * kScale);
  const Tensor bend = add(mul(mul(slope, 1 - 2 * part), square(first)), mul(slope, second));
  return add(mul(mul(slope, first), 2), mul(near, bend));
}

// The function is x t(x) with t = tanh(softplus(x)), so this is 2 t' + x t''.
Tensor of_mish(const Tensor& x, const Numbers&) {
  const Tensor t = tanh(softplus(x));
  const Tensor part = sigmoid(x);
  const Tensor first = mul(1 - square(t), part);
  const Tensor second = mul(first, 1 - part - 2 * (t * part));
  return add(mul(first, 2), mul(x, second));
}

Tensor within(const Tensor& x, double limit, double value) {
  return mul(to(abs(x.detach()) < limit, x.dtype()), value);
}

struct Row {
  std::string_view name;
  SecondSlope second;
};

// In the order of core/kernels/elementwise_functions.h. Of exp, sqrt, sigmoid and tanh by y, of the
// others by x.
constexpr Row kRows[] = {
    {"exp", [](const Tensor& y, const Numbers&) { return ones_like(y); }},
    {"log", [](const Tensor& x, const Numbers&) { return neg(pow(x, -2)); }},
    {"log1p", [](const Tensor& x, const Numbers&) { return neg(pow(x + 1, -2)); }},
    {"sin", [](const Tensor& x, const Numbers&) { return neg(sin(x)); }},
    {"cos", [](const Tensor& x, const Numbers&) { return neg(cos(x)); }},
    {"sqrt", of_power},
    {"abs", none},
    {"relu", none},
    {"sigmoid", [](const Tensor& y, const Numbers&) { return 1 - 2 * y; }},
    {"tanh", [](const Tensor& y, const Numbers&) { return -2 * y; }},
    {"silu", of_silu},
    {"gelu", of_gelu},
    {"mish", of_mish},
    {"gelu_tanh", of_gelu_tanh},
    {"hardswish", [](const Tensor& x, const Numbers&) { return within(x, 3, 1.0 / 3); }},
    {"clamp", none},
    {"leaky_relu", none},
    {"elu", of_elu},
    {"softplus", of_softplus},
    {"pow", of_power},
};

}  // namespace

SecondSlope second_slope(const char* name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.second;
  throw Error(str(name,
                  ": create_graph: its second derivative is not in the table of "
                  "autograd/ops/further/second_slopes.cpp; add a row, or leave create_graph "
                  "out"));
}

}  // namespace ringgrad
