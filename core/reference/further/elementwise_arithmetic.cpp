// Reference: elementwise arithmetic of two tensors and comparisons. (Sums and quotients are in
// elementwise.cpp.)
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

void sub(Stream, const Tensor& y, const Tensor& left, const Tensor& right) {
  map_numbers(
      "sub", y, [](auto a, auto b) { return a - b; }, left, right);
}

void mul(Stream, const Tensor& y, const Tensor& left, const Tensor& right) {
  map_numbers(
      "mul", y, [](auto a, auto b) { return a * b; }, left, right);
}

void div_backward(Stream, const Tensor& db, const Tensor& dy, const Tensor& left,
                  const Tensor& right) {
  const auto formula = [](double g, double a, double b) { return -g * (a / b / b); };
  map_floating("div_backward", db, formula, dy, left, right);
}

void maximum(Stream, const Tensor& y, const Tensor& left, const Tensor& right) {
  map(
      y, [](auto a, auto b) { return a > b || a != a ? a : b; }, left, right);
}

void minimum(Stream, const Tensor& y, const Tensor& left, const Tensor& right) {
  map(
      y, [](auto a, auto b) { return a < b || a != a ? a : b; }, left, right);
}

// `mine` receives nothing of dy if the other number wins, half if both are equal, and otherwise
// all.
void maximum_backward(Stream, const Tensor& da, const Tensor& db, const Tensor& dy, const Tensor& a,
                      const Tensor& b) {
  const auto share = [](double g, double mine, double other) {
    return mine < other ? 0 : mine == other ? g / 2 : g;
  };
  map_floating("maximum_backward", da, share, dy, a, b);
  map_floating("maximum_backward", db, share, dy, b, a);
}

void minimum_backward(Stream, const Tensor& da, const Tensor& db, const Tensor& dy, const Tensor& a,
                      const Tensor& b) {
  const auto share = [](double g, double mine, double other) {
    return mine > other ? 0 : mine == other ? g / 2 : g;
  };
  map_floating("minimum_backward", da, share, dy, a, b);
  map_floating("minimum_backward", db, share, dy, b, a);
}

void prelu(Stream, const Tensor& y, const Tensor& input, const Tensor& slope) {
  map_floating(
      "prelu", y, [](double x, double w) { return x > 0 ? x : w * x; }, input, slope);
}

void prelu_backward(Stream, const Tensor& dx, const Tensor& dw, const Tensor& dy,
                    const Tensor& input, const Tensor& slope) {
  const auto of_x = [](double g, double x, double w) { return x > 0 ? g : w * g; };
  const auto of_w = [](double g, double x) { return x > 0 ? 0 : x * g; };
  map_floating("prelu_backward", dx, of_x, dy, input, slope);
  map_floating("prelu_backward", dw, of_w, dy, input);
}

void equal(Stream, const Tensor& y, const Tensor& left, const Tensor& right) {
  map(
      y, [](auto a, auto b) { return a == b; }, left, right);
}

void less(Stream, const Tensor& y, const Tensor& left, const Tensor& right) {
  map(
      y, [](auto a, auto b) { return a < b; }, left, right);
}

void less_equal(Stream, const Tensor& y, const Tensor& left, const Tensor& right) {
  map(
      y, [](auto a, auto b) { return a <= b; }, left, right);
}

void where(Stream, const Tensor& y, const Tensor& condition, const Tensor& yes, const Tensor& no) {
  map(
      y, [](auto c, auto a, auto b) { return c != 0 ? a : b; }, condition, yes, no);
}

REFERENCE(sub);
REFERENCE(mul);
REFERENCE(div_backward);
REFERENCE(maximum);
REFERENCE(minimum);
REFERENCE(maximum_backward);
REFERENCE(minimum_backward);
REFERENCE(prelu);
REFERENCE(prelu_backward);
REFERENCE(equal);
REFERENCE(less);
REFERENCE(less_equal);
REFERENCE(where);

}  // namespace
}  // namespace ringgrad::reference
