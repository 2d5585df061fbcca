// Modules that change no value.
#pragma once

#include "ringgrad/autograd/ops/view.h"
#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

// Dimensions start_dim … end_dim become one: by default all but the batch.
class Flatten : public Module {
 public:
  explicit Flatten(int start_dim = 1, int end_dim = -1) : start_dim_(start_dim), end_dim_(end_dim) {}
  Tensor forward(const Tensor& x) override { return flatten(x, start_dim_, end_dim_); }

 private:
  int start_dim_, end_dim_;
};

class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
};

}  // namespace ringgrad::nn
