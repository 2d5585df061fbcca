#include "ringgrad/nn/layer_norm.h"

#include "ringgrad/autograd/ops/norm.h"
#include "ringgrad/core/factory.h"

namespace ringgrad::nn {

LayerNorm::LayerNorm(const Shape& normalized_shape, LayerNormOptions options)
    : normalized_shape_(normalized_shape), eps_(options.eps) {
  if (!options.affine) return;
  weight = register_parameter("weight", ones(normalized_shape));
  bias = register_parameter("bias", zeros(normalized_shape));
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, normalized_shape_, weight, bias, eps_); }

}  // namespace ringgrad::nn
