// Reference: the elementwise functions of floating numbers and their derivatives, one line with its
// formula for each. (elementwise.cpp has relu.)
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ringgrad/core/kernels.h"
#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }
// Returns Φ(x).
double normal(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
// Returns Φ'(x).
double normal_density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double softplus_of(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double gelu_argument(double x) {
  return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
}
double limited_log(double x) { return std::log(x) < -100 ? -100 : std::log(x); }

// FUNCTION defines NAME(y, x, numbers…). DERIVATIVE defines NAME(dx, dy, saved, numbers…).
#define FUNCTION(NAME, FORMULA, ...)                                                   \
  void NAME(Stream, const Tensor& y, const Tensor& input __VA_OPT__(, ) __VA_ARGS__) { \
    map_floating(                                                                      \
        #NAME, y, [=](double x) -> double { return FORMULA; }, input);                 \
  }                                                                                    \
  REFERENCE(NAME);
#define DERIVATIVE(NAME, SAVED, FORMULA, ...)                                                \
  void NAME(Stream, const Tensor& dx, const Tensor& grad,                                    \
            const Tensor& saved __VA_OPT__(, ) __VA_ARGS__) {                                \
    map_floating(                                                                            \
        #NAME, dx, [=](double dy, double SAVED) -> double { return FORMULA; }, grad, saved); \
  }                                                                                          \
  REFERENCE(NAME);

// clang-format off
FUNCTION(exp, std::exp(x))
FUNCTION(log, std::log(x))
FUNCTION(log1p, std::log1p(x))
DERIVATIVE(log1p_backward, x, dy / (1 + x))
FUNCTION(sin, std::sin(x))
DERIVATIVE(sin_backward, x, dy * std::cos(x))
FUNCTION(cos, std::cos(x))
DERIVATIVE(cos_backward, x, -dy * std::sin(x))
FUNCTION(sqrt, std::sqrt(x))
DERIVATIVE(sqrt_backward, y, dy / (2 * y))
FUNCTION(abs, std::abs(x))
DERIVATIVE(abs_backward, x, x > 0 ? dy : x < 0 ? -dy : x)  // at the end x is 0 or NaN
FUNCTION(sigmoid, logistic(x))
DERIVATIVE(sigmoid_backward, y, dy * y * (1 - y))
FUNCTION(tanh, std::tanh(x))
DERIVATIVE(tanh_backward, y, dy * (1 - y * y))
FUNCTION(silu, x * logistic(x))
DERIVATIVE(silu_backward, x, dy * logistic(x) * (1 + x * (1 - logistic(x))))
FUNCTION(gelu, x * normal(x))
DERIVATIVE(gelu_backward, x, dy * (normal(x) + x * normal_density(x)))
FUNCTION(mish, x * std::tanh(softplus_of(x)))
DERIVATIVE(mish_backward, x,
           dy * (std::tanh(softplus_of(x)) +
                 x * logistic(x) / std::pow(std::cosh(softplus_of(x)), 2)))
FUNCTION(gelu_tanh, x / 2 * (1 + std::tanh(gelu_argument(x))))
DERIVATIVE(gelu_tanh_backward, x,
           dy / 2 * (1 + std::tanh(gelu_argument(x)) +
                     x * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x) /
                         std::pow(std::cosh(gelu_argument(x)), 2)))
FUNCTION(hardswish, x * std::min(std::max(x + 3, 0.0), 6.0) / 6)
DERIVATIVE(hardswish_backward, x, x <= -3 ? 0 : x >= 3 ? dy : dy * (x / 3 + 0.5))
FUNCTION(floor, std::floor(x))
FUNCTION(ceil, std::ceil(x))
FUNCTION(round, std::nearbyint(x))
FUNCTION(trunc, std::trunc(x))
FUNCTION(sign, x > 0 ? 1 : x < 0 ? -1 : 0)

FUNCTION(pow, std::pow(x, exponent), double exponent)
DERIVATIVE(pow_backward, x, exponent == 0 ? 0 : dy * std::pow(x, exponent - 1) * exponent,
           double exponent)
FUNCTION(clamp, x < low ? low : x > high ? high : x, double low, double high)
DERIVATIVE(clamp_backward, x, x > low && x < high ? dy : 0, double low, double high)
FUNCTION(leaky_relu, x > 0 ? x : slope * x, double slope)
DERIVATIVE(leaky_relu_backward, x, x > 0 ? dy : slope * dy, double slope)
FUNCTION(elu, x > 0 ? x : alpha * std::expm1(x), double alpha)
DERIVATIVE(elu_backward, x, x > 0 ? dy : dy * alpha * std::exp(x), double alpha)
FUNCTION(softplus, (beta * x > 0 ? x : 0) + std::log1p(std::exp(-std::abs(beta * x))) / beta,
         double beta)
DERIVATIVE(softplus_backward, x, dy * logistic(beta * x), double beta)
// clang-format on

void huber(Stream, const Tensor& y, const Tensor& input, const Tensor& target, double delta,
           double scale) {
  const auto loss = [=](double x, double t) {
    const double d = std::abs(x - t);
    return d > delta ? delta / scale * (d - delta / 2) : d / 2 * (d / scale);
  };
  map_floating("huber", y, loss, input, target);
}
void huber_backward(Stream, const Tensor& dx, const Tensor& grad, const Tensor& input,
                    const Tensor& target, double delta, double scale) {
  const auto slope = [=](double dy, double x, double t) {
    const double d = x - t;
    return dy * ((d > delta ? delta : d < -delta ? -delta : d) / scale);
  };
  map_floating("huber_backward", dx, slope, grad, input, target);
}

void bce(Stream, const Tensor& y, const Tensor& input, const Tensor& target) {
  const auto loss = [](double x, double t) {
    return -t * limited_log(x) - (1 - t) * limited_log(1 - x);
  };
  map_floating("bce", y, loss, input, target);
}
void bce_backward(Stream, const Tensor& dx, const Tensor& grad, const Tensor& input,
                  const Tensor& target) {
  static constexpr double kLeast = 1e-12F;  // PyTorch's float32 constant
  const auto slope = [](double dy, double x, double t) {
    return dy * (x - t) / std::max(x * (1 - x), kLeast);
  };
  map_floating("bce_backward", dx, slope, grad, input, target);
}

// max(x, 0) - x t is x (1 - t) or -x t. 0 · ∞ is 0 here, because certainty about the right answer
// costs nothing.
void bce_with_logits(Stream, const Tensor& y, const Tensor& input, const Tensor& target) {
  const auto loss = [](double x, double t) {
    const double part = x > 0 ? 1 - t : -t;
    return (part == 0 ? 0 : part * x) + std::log1p(std::exp(-std::abs(x)));
  };
  map_floating("bce_with_logits", y, loss, input, target);
}
void bce_with_logits_backward(Stream, const Tensor& dx, const Tensor& grad, const Tensor& input,
                              const Tensor& target) {
  const auto slope = [](double dy, double x, double t) { return dy * (logistic(x) - t); };
  map_floating("bce_with_logits_backward", dx, slope, grad, input, target);
}

REFERENCE(huber);
REFERENCE(huber_backward);
REFERENCE(bce);
REFERENCE(bce_backward);
REFERENCE(bce_with_logits);
REFERENCE(bce_with_logits_backward);

}  // namespace
}  // namespace ringgrad::reference
