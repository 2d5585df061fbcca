#pragma once

#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

struct LayerNormOptions {
  double eps = 1e-5;
  bool affine = true;  // weight and bias
};

// Normalises over the last dimensions of x, which have `normalized_shape` (Ba et al. 2016).
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const Shape& normalized_shape, LayerNormOptions options = {});
  Tensor forward(const Tensor& x) override;

  Tensor weight, bias;  // of the normalized shape, or undefined

 private:
  Shape normalized_shape_;
  double eps_;
};

}  // namespace ringgrad::nn
