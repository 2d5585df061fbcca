// Rows for the elementwise functions and the nonlinearities.
#include <cmath>
#include <string_view>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test {
namespace {

OpSpec function(const std::string& name, std::vector<std::string> kernels,
                Tensor (*run)(const Tensor&), double (*f)(double), Input (*input)(const Shape&)) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = std::move(kernels);
  spec.run = [run](const Tensors& in) { return Tensors{run(in[0])}; };
  spec.reference = [f](const Arrays& in) { return Arrays{map(in[0], f)}; };
  spec.samples = {{input({2, 3})},        {input({})},   {input({2, 3, 4, 5})},
                  {input({1, 17, 2, 3})}, {input({33})}, {input({2, 0})}};
  const std::string op = name.substr(0, name.find(' '));
  spec.errors = {
      error<Error>(op + ": an argument is an undefined tensor", [run] { run(Tensor()); })};
  // scalar_test has the first two, golden_ops_test the others.
  constexpr std::string_view kTakeIntegers = "pow clamp floor ceil round trunc sign";
  const bool takes_integers = kTakeIntegers.find(op) != std::string_view::npos;
  if (!takes_integers)
    spec.errors.push_back(
        error<DTypeError>(op + ": unsupported dtype int64, expected a floating dtype",
                          [run] { run(zeros({2}, {.dtype = DType::Int64})); }));
  return spec;
}

OpSpec with(OpSpec spec, std::vector<Sample> more) {
  spec.samples.insert(spec.samples.end(), more.begin(), more.end());
  return spec;
}

OpSpec with_error(OpSpec spec, ErrorCase error) {
  spec.errors.push_back(std::move(error));
  return spec;
}

Input positive(const Shape& shape) { return uniform(shape, 0.25, 4); }
Input not_zero(const Shape& shape) { return uniform(shape).away_from(0); }
Input off_the_limits(const Shape& shape) { return uniform(shape).away_from(-0.5).away_from(1); }

// Returns an input away from the places where the functions of whole numbers jump.
Input off_the_halves(const Shape& shape) {
  Input input = uniform(shape);
  for (int half = -4; half <= 4; ++half) input = input.away_from(half / 2.0);
  return input;
}
Input off_three(const Shape& shape) { return uniform(shape, -5, 5).away_from(-3).away_from(3); }

double gelu_tanh_of(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

OpSpec stepped(const std::string& name, Tensor (*run)(const Tensor&), double (*f)(double)) {
  OpSpec spec = function(name, {name}, run, f, off_the_halves);
  spec.samples.push_back(not_smooth({literal({8}, {-2.5, -0.5, 0, 0.5, 1.5, 2, NAN, INFINITY})}));
  return spec;
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

// Far from zero, where a careless formula overflows; and what is not a number.
const Sample kFar = {literal({8}, {-1e4, -120, -90, -20, 20, 90, 120, 1e4})};
const Sample kNaN = not_smooth({literal({3}, {NAN, 1, -1})});

}  // namespace

std::vector<OpSpec> function_specs() {
  return {
      function(
          "exp", {"exp"}, exp, [](double x) { return std::exp(x); }, any),
      function(
          "log", {"log"}, log, [](double x) { return std::log(x); }, positive),
      function(
          "log1p", {"log1p", "log1p_backward"}, log1p, [](double x) { return std::log1p(x); },
          positive),
      with(function(
               "sin", {"sin", "sin_backward"}, sin, [](double x) { return std::sin(x); }, any),
           {kNaN}),
      with(function(
               "cos", {"cos", "cos_backward"}, cos, [](double x) { return std::cos(x); }, any),
           {kNaN}),
      with(function(
               "sqrt", {"sqrt", "sqrt_backward"}, sqrt, [](double x) { return std::sqrt(x); },
               positive),
           {kNaN}),
      with(function(
               "abs", {"abs", "abs_backward"}, abs, [](double x) { return std::abs(x); }, not_zero),
           {not_smooth({literal({3}, {0, -INFINITY, NAN})})}),
      function(
          "pow 3", {"pow", "pow_backward"}, [](const Tensor& x) { return pow(x, 3); },
          [](double x) { return x * x * x; }, any),
      function(
          "pow 2", {"pow", "pow_backward"}, [](const Tensor& x) { return pow(x, 2); },
          [](double x) { return x * x; }, any),
      function(
          "pow 0", {"pow", "pow_backward"}, [](const Tensor& x) { return pow(x, 0); },
          [](double) { return 1.0; }, any),
      function(
          "pow 0.5", {"sqrt", "sqrt_backward"}, [](const Tensor& x) { return pow(x, 0.5); },
          [](double x) { return std::sqrt(x); }, positive),
      function(
          "pow -1.5", {"pow", "pow_backward"}, [](const Tensor& x) { return pow(x, -1.5); },
          [](double x) { return std::pow(x, -1.5); }, positive),
      with_error(with(function(
                          "clamp", {"clamp", "clamp_backward"},
                          [](const Tensor& x) { return clamp(x, -0.5, 1); },
                          [](double x) { return x < -0.5 ? -0.5
                                                : x > 1  ? 1
                                                         : x; }, off_the_limits),
                      {not_smooth({literal({4}, {-0.5, 1, NAN, INFINITY})})}),
                 error<Error>("clamp: the lower limit 2 is above the upper limit 1",
                              [] { clamp(zeros({1}), 2, 1); })),

      keep_blocked(with(function(
                            "relu", {"relu", "relu_backward"}, relu,
                            [](double x) { return x > 0 || std::isnan(x) ? x : 0; }, not_zero),
                        {not_smooth({literal({4}, {0, NAN, -INFINITY, INFINITY})})})),
      keep_blocked(with(function(
                            "leaky_relu", {"leaky_relu", "leaky_relu_backward"},
                            [](const Tensor& x) { return leaky_relu(x, 0.2); },
                            [](double x) { return x > 0 ? x : 0.2 * x; }, not_zero),
                        {not_smooth({literal({2}, {0, NAN})})})),
      keep_blocked(
          with(function(
                   "elu", {"elu", "elu_backward"}, [](const Tensor& x) { return elu(x, 0.75); },
                   [](double x) { return x > 0 ? x : 0.75 * std::expm1(x); }, not_zero),
               {kFar, not_smooth({literal({2}, {0, NAN})})})),
      with_error(with(function(
                          "softplus", {"softplus", "softplus_backward"},
                          [](const Tensor& x) { return softplus(x, 1.5); },
                          [](double x) {
                            return std::max(x, 0.0) +
                                   std::log1p(std::exp(-1.5 * std::abs(x))) / 1.5;
                          },
                          any),
                      {kFar}),
                 error<Error>("softplus: beta is 0, expected a number above 0",
                              [] { softplus(zeros({1}), 0); })),
      with(function("sigmoid", {"sigmoid", "sigmoid_backward"}, sigmoid, sigmoid_of, any),
           {kFar, kNaN}),
      keep_blocked(with(
          function(
              "tanh", {"tanh", "tanh_backward"}, tanh, [](double x) { return std::tanh(x); }, any),
          {kFar, kNaN})),
      keep_blocked(with(function(
                            "gelu", {"gelu", "gelu_backward"}, gelu,
                            [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }, any),
                        {kFar, kNaN})),
      keep_blocked(with(function(
                            "silu", {"silu", "silu_backward"}, silu,
                            [](double x) { return x * sigmoid_of(x); }, any),
                        {kFar, kNaN})),
      keep_blocked(with(
          function("gelu_tanh", {"gelu_tanh", "gelu_tanh_backward"}, gelu_tanh, gelu_tanh_of, any),
          {kFar, kNaN})),
      keep_blocked(with(function(
                            "mish", {"mish", "mish_backward"}, mish,
                            [](double x) {
                              const double softplus =
                                  std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
                              return x * std::tanh(softplus);
                            },
                            any),
                        {kFar, kNaN})),
      keep_blocked(
          with(function(
                   "hardswish", {"hardswish", "hardswish_backward"}, hardswish,
                   [](double x) { return x * std::min(std::max(x + 3, 0.0), 6.0) / 6; }, off_three),
               {kFar, kNaN, not_smooth({literal({2}, {-3, 3})})})),
      keep_blocked(stepped("floor", floor, [](double x) { return std::floor(x); })),
      keep_blocked(stepped("ceil", ceil, [](double x) { return std::ceil(x); })),
      keep_blocked(stepped("round", round, [](double x) { return std::nearbyint(x); })),
      keep_blocked(stepped("trunc", trunc, [](double x) { return std::trunc(x); })),
      keep_blocked(
          stepped("sign", sign, [](double x) { return x > 0   ? 1.0
                                                      : x < 0 ? -1.0
                                                              : 0.0; })),
  };
}

}  // namespace ringgrad::test
