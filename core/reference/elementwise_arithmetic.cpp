// Reference: elementwise arithmetic and comparisons.
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
void sub(Stream, const Tensor& y, const Tensor& left, const Tensor& right) {
  map_numbers(
      "sub", y, [](auto a, auto b) { return a - b; }, left, right);
}
void mul(Stream, const Tensor& y, const Tensor& left, const Tensor& right) {
  map_numbers(
      "mul", y, [](auto a, auto b) { return a * b; }, left, right);
}
void div(Stream, const Tensor& y, const Tensor& left, const Tensor& right) {
  map_floating(
      "div", y, [](double a, double b) { return a / b; }, left, right);
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
// `mine` receives nothing of dy if the other one wins, half if both do, else all.
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

REGISTER_KERNEL(affine, DeviceType::CPU, Provider::Reference, affine);
REGISTER_KERNEL(axpby, DeviceType::CPU, Provider::Reference, axpby);
REGISTER_KERNEL(add, DeviceType::CPU, Provider::Reference, add);
REGISTER_KERNEL(sub, DeviceType::CPU, Provider::Reference, sub);
REGISTER_KERNEL(mul, DeviceType::CPU, Provider::Reference, mul);
REGISTER_KERNEL(div, DeviceType::CPU, Provider::Reference, div);
REGISTER_KERNEL(div_backward, DeviceType::CPU, Provider::Reference, div_backward);
REGISTER_KERNEL(maximum, DeviceType::CPU, Provider::Reference, maximum);
REGISTER_KERNEL(maximum_backward, DeviceType::CPU, Provider::Reference, maximum_backward);
REGISTER_KERNEL(minimum, DeviceType::CPU, Provider::Reference, minimum);
REGISTER_KERNEL(minimum_backward, DeviceType::CPU, Provider::Reference, minimum_backward);
REGISTER_KERNEL(prelu, DeviceType::CPU, Provider::Reference, prelu);
REGISTER_KERNEL(prelu_backward, DeviceType::CPU, Provider::Reference, prelu_backward);
REGISTER_KERNEL(equal, DeviceType::CPU, Provider::Reference, equal);
REGISTER_KERNEL(less, DeviceType::CPU, Provider::Reference, less);
REGISTER_KERNEL(less_equal, DeviceType::CPU, Provider::Reference, less_equal);
REGISTER_KERNEL(where, DeviceType::CPU, Provider::Reference, where);

}  // namespace
}  // namespace ringgrad::reference
