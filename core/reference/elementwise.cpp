// Reference: the elementwise operations that training needs.
#include <cmath>

#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

void affine(Stream, const Tensor& y, const Tensor& x, Scalar scale, Scalar shift) {
  const auto formula = [=]<class A>(A value) { return scale.to<A>() * value + shift.to<A>(); };
  map_numbers("affine", y, formula, x);
}
void axpby(Stream, const Tensor& y, const Tensor& x, Scalar alpha, Scalar beta) {
  const auto formula = [=]<class A>(A of_x, A of_y) {
    return alpha.to<A>() * of_x + beta.to<A>() * of_y;
  };
  map_numbers("axpby", y, formula, x, y);
}
void add(Stream, const Tensor& y, const Tensor& left, const Tensor& right) {
  map_numbers(
      "add", y, [](auto a, auto b) { return a + b; }, left, right);
}
void div(Stream, const Tensor& y, const Tensor& left, const Tensor& right) {
  map_floating(
      "div", y, [](double a, double b) { return a / b; }, left, right);
}

void relu(Stream, const Tensor& y, const Tensor& input) {
  map_floating(
      "relu", y, [](double x) { return x > 0 || std::isnan(x) ? x : 0; }, input);
}
void relu_backward(Stream, const Tensor& dx, const Tensor& grad, const Tensor& output) {
  map_floating(
      "relu_backward", dx, [](double dy, double y) { return y > 0 ? dy : 0; }, grad, output);
}

REFERENCE(affine);
REFERENCE(axpby);
REFERENCE(add);
REFERENCE(div);
REFERENCE(relu);
REFERENCE(relu_backward);

}  // namespace
}  // namespace ringgrad::reference
