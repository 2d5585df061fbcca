#pragma once

#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

struct LinearOptions {
  bool bias = true;
};

// y = x weightᵀ + bias:  x [..., in_features], y [..., out_features].
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, LinearOptions options = {});
  Tensor forward(const Tensor& x) override;

  Tensor weight, bias;  // [out, in], [out] or undefined
};

}  // namespace ringgrad::nn
