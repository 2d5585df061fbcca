// Convolution layers: the operations of autograd/ops/conv.h with parameters of their own.
#pragma once

#include "ringgrad/autograd/ops/conv.h"
#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

// geometry.h's fields, and bias: designated initialisers cannot name a base's fields.
struct Conv2dOptions {
  Pair stride = 1;
  Pair padding = 0;
  Pair dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

// x [N, in_channels, H, W] → [N, out_channels, P, Q]. Both numbers of channels are multiples of groups.
class Conv2d : public Module {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, Pair kernel, Conv2dOptions options = {});
  Tensor forward(const Tensor& x) override;

  Tensor weight, bias;  // [out, in/groups, R, S], [out] or undefined

 private:
  ringgrad::Conv2dOptions options_;
};

struct ConvTranspose2dOptions {
  Pair stride = 1;
  Pair padding = 0;
  Pair output_padding = 0;
  Pair dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

class ConvTranspose2d : public Module {
 public:
  ConvTranspose2d(int64_t in_channels, int64_t out_channels, Pair kernel, ConvTranspose2dOptions options = {});
  Tensor forward(const Tensor& x) override;

  Tensor weight, bias;  // [in, out/groups, R, S], [out] or undefined

 private:
  ringgrad::ConvTranspose2dOptions options_;
};

}  // namespace ringgrad::nn
