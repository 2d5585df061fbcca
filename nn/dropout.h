#pragma once

#include "ringgrad/autograd/ops/dropout.h"
#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

// Zeroes elements with probability p in training, and is the identity in evaluation (Srivastava et al. 2014).
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) : p_(p) {}
  Tensor forward(const Tensor& x) override { return dropout(x, p_, is_training()); }

 private:
  double p_;
};

}  // namespace ringgrad::nn
