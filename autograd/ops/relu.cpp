#include "ringgrad/autograd/ops/common.h"

namespace ringgrad {

Tensor relu(const Tensor& x) {
  return elementwise("relu", x, Takes::AnyLayout, Saves::Output, kernels::relu,
                     kernels::relu_backward);
}

}  // namespace ringgrad
