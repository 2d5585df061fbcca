#include "autograd/ops/activation.h"

#include "autograd/ops/common.h"

namespace ringgrad {
namespace {

using Forward = Kernel<void(const Tensor& y, const Tensor& x)>;
using Backward = Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& saved)>;

enum class Saves { Input, Output };  // which of the two the derivative is written in

Tensor activation(const char* name, const Tensor& x, const Forward& forward, const Backward& backward, Saves saves) {
  OpScope scope(name);
  check_floating(name, x);
  Tensor y = empty_like(x);
  forward(y, x);
  return differentiable(name, {x}, y,
                        [&backward, saved = save(saves == Saves::Output ? y : x)](const Tensor& dy) -> Gradients {
                          Tensor dx = empty_like(saved.get());
                          backward(dx, like(dy, saved.get()), saved.get());
                          return {dx};
                        });
}

}  // namespace

// f(0) = 0 keeps the zero padding of the channel-blocked layout, so these take x as it lies.
Tensor relu(const Tensor& x) { return activation("relu", x, kernels::relu, kernels::relu_backward, Saves::Output); }
Tensor tanh(const Tensor& x) { return activation("tanh", x, kernels::tanh, kernels::tanh_backward, Saves::Output); }
Tensor gelu(const Tensor& x) { return activation("gelu", x, kernels::gelu, kernels::gelu_backward, Saves::Input); }
Tensor silu(const Tensor& x) { return activation("silu", x, kernels::silu, kernels::silu_backward, Saves::Input); }

Tensor sigmoid(const Tensor& x) {  // 1/2 at 0
  check_floating("sigmoid", x);
  return activation("sigmoid", strided(x), kernels::sigmoid, kernels::sigmoid_backward, Saves::Output);
}

Tensor leaky_relu(const Tensor& x, double slope) {
  OpScope scope("leaky_relu");
  check_floating("leaky_relu", x);
  Tensor y = empty_like(x);
  kernels::leaky_relu(y, x, slope);
  return differentiable("leaky_relu", {x}, y, [x = save(x), slope](const Tensor& dy) -> Gradients {
    Tensor dx = empty_like(x.get());
    kernels::leaky_relu_backward(dx, like(dy, x.get()), x.get(), slope);
    return {dx};
  });
}

}  // namespace ringgrad
