// L-BFGS beyond Rosenbrock's valley in tests/golden: line searches that go far, turn back and end
// early, and what cannot be optimised.
#include "ringgrad/nn/optim/lbfgs.h"

#include <cmath>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::lbfgs_test {

namespace {

struct Function {
  std::function<double(double)> value;
  std::function<double(double)> slope;
};

// a sin(w x) + √(1 + (x - p)²): a valley with waves.
Function waves(double a, double w, double p) {
  return {[=](double x) { return a * std::sin(w * x) + std::sqrt(1 + (x - p) * (x - p)); },
          [=](double x) {
            return a * w * std::cos(w * x) + (x - p) / std::sqrt(1 + (x - p) * (x - p));
          }};
}

struct End {
  double x;
  int calls;
};

// Returns the end of one step from `start`.
End step(const Function& f, double start, const optim::LBFGSOptions& options) {
  const Tensor x = tensor<double>({start}).set_requires_grad();
  optim::LBFGS optimizer(std::vector<Tensor>{x}, options);
  int calls = 0;
  const double before = optimizer.step([&] {
    ++calls;
    const double at = to_vector<double>(x)[0];
    x.set_grad(tensor<double>({f.slope(at)}));
    return tensor<double>({f.value(at)}, Shape{});
  });
  CHECK(before == f.value(start));
  return {to_vector<double>(x)[0], calls};
}

optim::LBFGSOptions searching(double lr, int max_iter, double tolerance_change = 1e-9) {
  return {.lr = lr,
          .max_iter = max_iter,
          .max_eval = 100,
          .tolerance_change = tolerance_change,
          .line_search = optim::LineSearch::StrongWolfe};
}

}  // namespace

// The numbers are those of torch.optim.LBFGS 2.15 with line_search_fn="strong_wolfe".
TEST_CASE("L-BFGS searches along a line as PyTorch does", "[quick]") {
  struct Row {
    Function f;
    double start;
    optim::LBFGSOptions options;
    double x;
    int calls;
  };
  // Flat but for a step at 0: points that have fallen too little are still lower than others.
  const Function ledge = {[](double x) { return -0.01 * std::tanh(100 * x) + 1e-7 * x * x; },
                          [](double x) { return -std::pow(std::cosh(100 * x), -2) + 2e-7 * x; }};
  const Function kink = {[](double x) { return std::max(x, -3 * x); },
                         [](double x) { return x > 0 ? 1 : -3; }};
  const Row rows[] = {
      {waves(1.6, 2.8, 0.1), 0.5, searching(10, 3), -0.5189460003666696, 8},
      {waves(2.2, 3.3, 0.1), -0.1, searching(10, 3), -0.4557088597926445, 9},
      {waves(2.7, 4.8, 1.4), 1.6, searching(10, 3), -0.3127921547851097, 13},
      {waves(0.4, 4.1, 1.3), -2.8, searching(0.1, 3), -1.7647918687110093, 13},
      {waves(2.6, 6.0, -0.8), 3.4, searching(1, 3), 2.8694788304281764, 9},
      {waves(2.3, 3.4, -0.8), 2.4, searching(10, 3), -0.47367000397663056, 11},
      // a first step that is far too short
      {waves(0, 1, 0), 2, searching(0.001, 3), 0.5400573186491265, 11},
      {waves(0, 1, 1), -3, searching(0.01, 3), 0.8547772719911979, 10},
      {waves(0.1, 1, 0), 4, searching(0.01, 3), 0.011996923872848954, 11},
      {ledge, 0, searching(1000, 1), 37.0413185307151, 5},
      // a kink: the bracket shrinks until it is small enough
      {kink, 3.7, searching(1, 1), 0, 33},
      // the search does not end at tolerance_change
      {waves(2.7, 4.8, 1.4), 1.6, searching(10, 1, 1), -0.34269205040939543, 7},
      {waves(1.6, 2.8, 0.1), 0.5, searching(10, 1, 1), -0.5300679146872272, 4},
  };
  for (const Row& row : rows) {
    INFO("row " << &row - rows);
    const End end = step(row.f, row.start, row.options);
    CHECK(std::abs(end.x - row.x) <= 1e-7 * std::abs(row.x) + 1e-9);
    CHECK(end.calls == row.calls);
  }
}

TEST_CASE("L-BFGS stops at a minimum, on a straight line, and after max_eval calls", "[quick]") {
  CHECK(step(waves(0, 1, 2), 2, {}).calls == 1);
  // Without curvature each direction is the gradient: the first step has length 1, the others lr.
  const Function line = {[](double x) { return -4 * x; }, [](double) { return -4; }};
  CHECK(step(line, 0, {.lr = 0.5, .max_iter = 3, .max_eval = 9}).x == 0.5 + 2 + 2);
  // A line search is cut off at one call more.
  const double start = -2.8;
  const Function f = waves(0.4, 4.1, 1.3);
  for (const int max_eval : {1, 2, 3, 4, 7}) {
    optim::LBFGSOptions options = searching(0.1, 3);
    options.max_eval = max_eval;
    const End end = step(f, start, options);
    CHECK(end.calls <= max_eval + 1);
    CHECK(f.value(end.x) <= f.value(start));
  }
  CHECK(step(f, start, {.lr = 0.01, .max_iter = 8, .max_eval = 4}).calls == 4);
}

TEST_CASE("L-BFGS leaves alone what is frozen or has no gradient", "[quick]") {
  const Tensor x = tensor<double>({3, 4}).set_requires_grad();
  const Tensor unused = tensor<double>({5}).set_requires_grad();
  const Tensor frozen = tensor<float>({6});
  optim::LBFGS optimizer(std::vector<Tensor>{x, unused, frozen});
  const double before = optimizer.step([&] {
    optimizer.zero_grad();
    const Tensor loss = sum(square(x - 1));
    loss.backward();
    return loss;
  });
  CHECK(before == 13);
  CHECK(difference(x, {1, 1}, {DType::Float32}) == "");
  CHECK(to_vector<double>(unused)[0] == 5);
  CHECK(to_vector<float>(frozen)[0] == 6);
}

TEST_CASE("L-BFGS takes in what is unfrozen", "[quick]") {
  const Tensor x = tensor<double>({3}).set_requires_grad();
  const Tensor later = tensor<double>({5});
  optim::LBFGS optimizer(std::vector<Tensor>{x, later});
  const auto step = [&] {
    optimizer.step([&] {
      optimizer.zero_grad();
      const Tensor loss = sum(square(x - 1)) + sum(square(later + 2));
      loss.backward();
      return loss;
    });
  };
  step();
  CHECK(to_vector<double>(later)[0] == 5);
  later.set_requires_grad();
  for (int i = 0; i < 3; ++i) step();
  CHECK(difference(x, {1}, {DType::Float32}) == "");
  CHECK(difference(later, {-2}, {DType::Float32}) == "");
}

TEST_CASE("L-BFGS refuses what it cannot optimise", "[quick]") {
  const Tensor x = zeros({2}).set_requires_grad();
  const auto refused = [](const std::string& text, const std::vector<Tensor>& parameters,
                          const optim::LBFGSOptions& options = {}) {
    require_error<Error>(text, [&] { optim::LBFGS(parameters, options); });
  };
  refused("LBFGS: lr -1, max_iter 20, max_eval 0, history_size 100, expected", {x}, {.lr = -1});
  refused("max_iter 0", {x}, {.max_iter = 0});
  refused("max_eval -1", {x}, {.max_eval = -1});
  refused("history_size 0", {x}, {.history_size = 0});
  refused("is undefined or was computed from others", {x, Tensor()});
  refused("is undefined or was computed from others", {x * 2});
  refused("is float64 on cpu:0, the first one float32",
          {x, zeros({2}, {.dtype = DType::Float64}).set_requires_grad()});
  refused("there are no parameters that require a gradient", {zeros({2})});
}

}  // namespace ringgrad::test::lbfgs_test
