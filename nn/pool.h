// Pooling as modules: MaxPool2d pool{{.kernel = 3, .stride = 2, .padding = 1}}, or just MaxPool2d pool{2}.
#pragma once

#include "ringgrad/autograd/ops/pool.h"
#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Pair kernel) : options_{.kernel = kernel} {}
  explicit MaxPool2d(const Pool2dOptions& options) : options_(options) {}
  Tensor forward(const Tensor& x) override { return max_pool2d(x, options_); }

 private:
  Pool2dOptions options_;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Pair kernel) : options_{.kernel = kernel} {}
  explicit AvgPool2d(const Pool2dOptions& options) : options_(options) {}
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, options_); }

 private:
  Pool2dOptions options_;
};

class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(Pair output_size) : output_size_(output_size) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, output_size_); }

 private:
  Pair output_size_;
};

}  // namespace ringgrad::nn
