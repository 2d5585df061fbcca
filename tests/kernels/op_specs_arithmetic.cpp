// Rows for the elementwise arithmetic, with broadcasting and with integers.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test {
namespace {

// A binary operation on every way in which shapes broadcast.
OpSpec binary(const std::string& name, std::vector<std::string> kernels,
              Tensor (*run)(const Tensor&, const Tensor&), double (*f)(double, double)) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = std::move(kernels);
  spec.run = [run](const Tensors& in) { return Tensors{run(in[0], in[1])}; };
  spec.reference = [f](const Arrays& in) { return Arrays{map(in[0], in[1], f)}; };
  // Div has a pole there.
  const auto b = [](const Shape& shape) { return uniform(shape).away_from(0); };
  spec.samples = {{uniform({2, 3}), b({2, 3})},
                  {uniform({2, 3}), b({3})},
                  {uniform({3}), b({2, 3})},
                  {uniform({2, 1, 4}), b({3, 1})},
                  {uniform({}), b({2, 3})},
                  {uniform({2, 2}), b({})},
                  {uniform({2, 3, 4, 5}), b({2, 3, 4, 5})},
                  {uniform({2, 17, 2, 2}), b({2, 17, 2, 2})},
                  {uniform({2, 3, 2, 2}), b({3, 1, 1})},
                  {uniform({2, 17, 2, 3}), b({17, 1, 1})},
                  {uniform({2, 17, 2, 3}), b({2, 17, 1, 1})},
                  {uniform({1, 17, 1, 1}), b({2, 17, 2, 3})},
                  {uniform({0, 3}), b({3})},
                  {uniform({2, 0}), b({2, 1})}};
  spec.terms = 16;  // a gradient is summed over the broadcast dimensions
  const auto call = [run](const Shape& a, DType a_dtype, const Shape& b, DType b_dtype) {
    return [=] { run(zeros(a, {.dtype = a_dtype}), zeros(b, {.dtype = b_dtype})); };
  };
  spec.errors = {
      error<ShapeError>(
          name + ": shapes [2, 3] and [4] cannot be broadcast: dimension -1 has sizes 3 and 4",
          call({2, 3}, DType::Float32, {4}, DType::Float32)),
      error<DTypeError>(
          name +
              ": dtypes float32 and float64 differ, expected equal ones; convert with to(x, dtype)",
          call({2}, DType::Float32, {2}, DType::Float64)),
      error<Error>(name + ": an argument is an undefined tensor",
                   [run] { run(zeros({2}), Tensor()); }),
      error<Error>(name + ": an argument is an undefined tensor",
                   [run] { run(Tensor(), zeros({2})); }),
  };
  return spec;
}

// The same for integers: no gradient, whole inputs.
OpSpec on_integers(OpSpec spec, double (*f)(double, double)) {
  spec.name += " of integers";
  spec.reference = [f](const Arrays& in) { return Arrays{map(in[0], in[1], f)}; };
  spec.samples = {{whole({4, 5}, 5, 20), whole({4, 5}, 0, 5)},
                  {whole({3, 1}, 5, 20), whole({4}, 0, 5)},
                  {whole({2, 3, 2, 2}, 5, 20), whole({2, 3, 2, 2}, 0, 5)},
                  {whole({0}, 0, 1), whole({1}, 0, 1)}};
  spec.errors = {};
  spec.dtypes = kIntegerDTypes;
  spec.keeps_blocked = false;
  return spec;
}

double add_of(double a, double b) { return a + b; }
double sub_of(double a, double b) { return a - b; }
double mul_of(double a, double b) { return a * b; }
double div_of(double a, double b) { return a / b; }
double max_of(double a, double b) { return std::isnan(a) || a > b ? a : b; }

OpSpec unary(const std::string& name, std::vector<std::string> kernels,
             Tensor (*run)(const Tensor&), double (*f)(double)) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = std::move(kernels);
  spec.run = [run](const Tensors& in) { return Tensors{run(in[0])}; };
  spec.reference = [f](const Arrays& in) { return Arrays{map(in[0], f)}; };
  spec.samples = {{uniform({2, 3}).away_from(0)},
                  {uniform({})},
                  {uniform({2, 3, 4, 5}).away_from(0)},
                  {uniform({0, 2})}};
  spec.errors = {error<Error>("an argument is an undefined tensor", [run] { run(Tensor()); })};
  return spec;
}

}  // namespace

std::vector<OpSpec> arithmetic_specs() {
  std::vector<OpSpec> specs = {
      keep_blocked(binary("add", {"add", "sum"}, add, add_of)),
      keep_blocked(binary("sub", {"sub", "sum"}, sub, sub_of)),
      keep_blocked(binary("mul", {"mul", "sum"}, mul, mul_of)),
      binary("div", {"div", "div_backward"}, div, div_of),
      keep_blocked(binary("maximum", {"maximum", "maximum_backward"}, maximum, max_of)),
      on_integers(binary("add", {"add"}, add, add_of), add_of),
      on_integers(binary("sub", {"sub"}, sub, sub_of), sub_of),
      on_integers(binary("mul", {"mul"}, mul, mul_of), mul_of),
      on_integers(binary("maximum", {"maximum"}, maximum, max_of), max_of),
      unary("neg", {"affine"}, neg, [](double x) { return -x; }),
      unary(
          "x + c", {"affine"}, [](const Tensor& x) { return add(x, 0.75); },
          [](double x) { return x + 0.75; }),
      unary(
          "x · c", {"affine"}, [](const Tensor& x) { return mul(x, -1.5); },
          [](double x) { return -1.5 * x; }),
  };
  const auto fraction = [](const char* name, Tensor (*run)(const Tensor&, Scalar),
                           const std::string& text) {
    return error<DTypeError>(std::string(name) + text,
                             [run] { run(zeros({2}, {.dtype = DType::Int64}), 0.5); });
  };
  specs[specs.size() - 2].errors.push_back(
      fraction("add", add, ": the tensor is int64 and the number 0.5"));
  specs[specs.size() - 1].errors.push_back(
      fraction("mul", mul, ": the tensor is int64 and the number 0.5"));
  specs[specs.size() - 2].errors.push_back(
      error<DTypeError>("add: the tensor is int32, which cannot hold the number 3e+09",
                        [] { add(zeros({2}, {.dtype = DType::Int32}), 3e9); }));
  // A sum with itself and a difference from itself: both edges of a node lead to the same leaf.
  OpSpec twice = unary(
      "x · x + x", {"mul", "add"}, [](const Tensor& x) { return x * x + x; },
      [](double x) { return x * x + x; });
  twice.keeps_blocked = true;
  specs.push_back(twice);
  OpSpec operators = unary(
      "operators with numbers", {"affine"},
      [](const Tensor& x) { return (2 - (3 * x - 1) / 4) + 1 / (x * x); },
      [](double x) { return 2 - (3 * x - 1) / 4 + 1 / (x * x); });
  for (Sample& sample : operators.samples)
    sample.inputs[0] = uniform(sample.inputs[0].shape, 0.5, 2);
  specs.push_back(operators);

  // NaN and ties. At a tie each operand receives half; a NaN wins from either side.
  OpSpec special = binary("maximum", {"maximum", "maximum_backward"}, maximum, max_of);
  special.name = "maximum of NaN and ties";
  special.samples = {not_smooth(
      {literal({5}, {NAN, 1, 2, -INFINITY, 3}), literal({5}, {1, NAN, 2, -INFINITY, INFINITY})})};
  special.never_empty = "the row above has empty samples";
  specs.push_back(special);

  OpSpec leaky = keep_blocked(binary(
      "prelu", {"prelu", "prelu_backward", "sum"},
      [](const Tensor& w, const Tensor& x) { return prelu(x, w); },
      [](double w, double x) { return x > 0 ? x : w * x; }));
  leaky.errors = {
      error<DTypeError>("prelu: unsupported dtype int64, expected a floating dtype",
                        [] { prelu(zeros({2}, {.dtype = DType::Int64}), zeros({2})); })};
  specs.push_back(leaky);

  const auto axpby = [](const std::string& name, double alpha, double beta) {
    OpSpec spec;
    spec.name = name;
    spec.kernels = {"axpby"};
    spec.run = [=](const Tensors& in) {
      Tensor y = empty_like(in[1]);
      kernels::copy(y, in[1]);
      kernels::axpby(y, in[0], alpha, beta);
      return Tensors{y};
    };
    spec.reference = [=](const Arrays& in) {
      return Arrays{map(in[0], in[1], [=](double x, double y) { return alpha * x + beta * y; })};
    };
    spec.samples = {{uniform({3, 5}), uniform({3, 5})}, {uniform({0}), uniform({0})}};
    spec.bare_kernel = true;
    return spec;
  };
  specs.push_back(axpby("axpby", 0.25, -1.5));

  // Negative numbers for a type without a sign: they wrap, and the sums come out right.
  OpSpec whole_axpby = axpby("axpby of integers", 2, -1);
  whole_axpby.samples = {{whole({3, 5}, 5, 20), whole({3, 5}, 0, 5)},
                         {whole({0}, 0, 1), whole({0}, 0, 1)}};
  whole_axpby.dtypes = kIntegerDTypes;
  specs.push_back(whole_axpby);
  OpSpec whole_affine = unary(
      "affine of integers", {"affine"},
      [](const Tensor& x) {
        const Tensor y = empty_like(x);
        kernels::affine(y, x, -1, 20);
        kernels::affine(y, y, 2, -4);
        return y;
      },
      [](double x) { return 2 * (20 - x) - 4; });
  whole_affine.errors = {};
  whole_affine.bare_kernel = true;
  whole_affine.samples = {{whole({3, 5}, 0, 18)}, {whole({0}, 0, 1)}};
  whole_affine.dtypes = kIntegerDTypes;
  specs.push_back(whole_affine);
  return specs;
}

}  // namespace ringgrad::test
