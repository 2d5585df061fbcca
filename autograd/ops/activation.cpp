#include "ringgrad/autograd/ops/activation.h"

#include <cmath>

#include "ringgrad/autograd/ops/common.h"

namespace ringgrad {

Tensor relu(const Tensor& x) {
  return elementwise("relu", x, Takes::AnyLayout, Saves::Output, kernels::relu, kernels::relu_backward);
}
Tensor leaky_relu(const Tensor& x, double slope) {
  const bool finite = std::isfinite(static_cast<float>(slope));
  const Takes takes = finite ? Takes::AnyLayout : Takes::Strided;  // 0 · inf is no zero
  return elementwise("leaky_relu", x, takes, Saves::Input, kernels::leaky_relu, kernels::leaky_relu_backward, slope);
}
Tensor sigmoid(const Tensor& x) {  // 1/2 at 0
  return elementwise("sigmoid", x, Takes::Strided, Saves::Output, kernels::sigmoid, kernels::sigmoid_backward);
}
Tensor tanh(const Tensor& x) {
  return elementwise("tanh", x, Takes::AnyLayout, Saves::Output, kernels::tanh, kernels::tanh_backward);
}
Tensor gelu(const Tensor& x) {
  return elementwise("gelu", x, Takes::AnyLayout, Saves::Input, kernels::gelu, kernels::gelu_backward);
}
Tensor silu(const Tensor& x) {
  return elementwise("silu", x, Takes::AnyLayout, Saves::Input, kernels::silu, kernels::silu_backward);
}

}  // namespace ringgrad
