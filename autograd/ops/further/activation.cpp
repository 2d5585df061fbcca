#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/program_observer.h"

namespace ringgrad {

// For functions that multiply by a number: 0 · ∞ is not zero, so the padding could change.
static Takes takes(double factor) {
  return std::isfinite(static_cast<float>(factor)) ? Takes::AnyLayout : Takes::Strided;
}
Tensor leaky_relu(const Tensor& x, Real slope) {
  return elementwise("leaky_relu", x, takes(slope), Saves::Input, kernels::leaky_relu,
                     kernels::leaky_relu_backward, slope);
}
Tensor elu(const Tensor& x, Real alpha) {
  return elementwise("elu", x, takes(alpha), Saves::Input, kernels::elu, kernels::elu_backward,
                     alpha);
}
Tensor softplus(const Tensor& x, Real beta) {  // log 2 at 0
  CHECK(beta > 0, "softplus: beta is ", beta, ", expected a number above 0");
  return elementwise("softplus", x, Takes::Strided, Saves::Input, kernels::softplus,
                     kernels::softplus_backward, beta);
}
Tensor sigmoid(const Tensor& x) {  // 1/2 at 0
  return elementwise("sigmoid", x, Takes::Strided, Saves::Output, kernels::sigmoid,
                     kernels::sigmoid_backward);
}
Tensor tanh(const Tensor& x) {
  return elementwise("tanh", x, Takes::AnyLayout, Saves::Output, kernels::tanh,
                     kernels::tanh_backward);
}
Tensor gelu(const Tensor& x) {
  return elementwise("gelu", x, Takes::AnyLayout, Saves::Input, kernels::gelu,
                     kernels::gelu_backward);
}
Tensor silu(const Tensor& x) {
  return elementwise("silu", x, Takes::AnyLayout, Saves::Input, kernels::silu,
                     kernels::silu_backward);
}
Tensor gelu_tanh(const Tensor& x) {
  return elementwise("gelu_tanh", x, Takes::AnyLayout, Saves::Input, kernels::gelu_tanh,
                     kernels::gelu_tanh_backward);
}
Tensor mish(const Tensor& x) {
  return elementwise("mish", x, Takes::AnyLayout, Saves::Input, kernels::mish,
                     kernels::mish_backward);
}
Tensor hardswish(const Tensor& x) {
  return elementwise("hardswish", x, Takes::AnyLayout, Saves::Input, kernels::hardswish,
                     kernels::hardswish_backward);
}

namespace {

using Forward = Kernel<void(const Tensor& y, const Tensor& x)>;
using Backward = Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& y)>;

// Returns x [..., C] contiguous as [N, C].
Tensor rows(const Tensor& x) {
  const Shape shape = {x.numel() / x.size(-1), x.size(-1)};
  return x.as_strided(shape, contiguous_strides(shape), x.storage_offset());
}

// dx by operations, over the last dimension: where a graph of the gradients is asked for.
using ByOperations = Tensor (*)(const Tensor& dy, const Tensor& y);

Tensor over_rows(const char* name, const Tensor& x_, int dim, const Forward& forward,
                 const Backward& backward, ByOperations twice) {
  OpScope scope(name);
  check_floating(name, x_);
  if (x_.dim() == 0)
    return reshape(over_rows(name, reshape(x_, {1}), dim, forward, backward, twice), {});
  dim = normalize_dim(name, dim, x_.dim());
  if (dim != x_.dim() - 1)  // the kernels see rows: bring the dimension to the end and back
    return transpose(over_rows(name, transpose(x_, dim, -1), -1, forward, backward, twice), dim,
                     -1);
  const Tensor x = strided_contiguous(x_);
  Tensor y = empty_like(x);
  if (x.numel() > 0) forward(rows(y), rows(x));
  return differentiable(
      name, {x}, y, [&backward, twice, y = save(y, kSavedOutput)](const Tensor& dy) -> Gradients {
        if (grad_enabled()) return {twice(dy, y.get())};
        Tensor dx = empty_like(y.get());
        if (dx.numel() > 0) backward(rows(dx), rows(strided_contiguous(dy)), rows(y.get()));
        return {dx};
      });
}

}  // namespace

Tensor softmax(const Tensor& x, Int dim) {
  return over_rows(
      "softmax", x, dim, kernels::softmax, kernels::softmax_backward,
      [](const Tensor& dy, const Tensor& y) { return mul(y, sub(dy, sum(mul(dy, y), -1, true))); });
}
Tensor log_softmax(const Tensor& x, Int dim) {
  return over_rows(
      "log_softmax", x, dim, kernels::log_softmax, kernels::log_softmax_backward,
      [](const Tensor& dy, const Tensor& y) { return sub(dy, mul(exp(y), sum(dy, -1, true))); });
}

Tensor dropped(const Tensor& x_, const Tensor& state, double p) {
  // Element i's number belongs to row-major index i, whatever the order in memory.
  const Tensor x = strided_contiguous(x_);
  Tensor y = empty_like(x);
  kernels::dropout(y, x, state, p);
  return differentiable("dropout", {x}, y, [state, p](const Tensor& dy) -> Gradients {
    return {dropped(dy, state, p)};
  });
}

Tensor dropout(const Tensor& x_, Real p, Flag training) {
  if (program_observer) program_observer->mode("dropout", training);
  OpScope scope("dropout");
  check_floating("dropout", x_);
  CHECK(p >= 0 && p <= 1, "dropout: the probability is ", p, ", expected a number in [0, 1]");
  if (!training || p == 0) return x_;
  return dropped(x_, default_generator(x_.device()).draw(x_.numel()), p);
}

}  // namespace ringgrad
