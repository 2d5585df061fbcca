#pragma once

#include <functional>

#include "ringgrad/autograd/ops/norm.h"
#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

struct BatchNorm2dOptions {
  double eps = 1e-5;
  double momentum = 0.1;            // of the new value in the running statistics
  bool affine = true;               // weight and bias
  bool track_running_stats = true;  // without them the batch's statistics are used in evaluation, too
};

// What the same pass over the data does besides: bn(x, {.activation = Activation::Relu, .residual = shortcut}).
struct BatchNormFusion {
  Activation activation = Activation::None;
  Tensor residual = {};  // added before the activation
};

// Normalises each channel of x [N, features, H, W], over the batch in training and by the running statistics in
// evaluation; see batch_norm() in autograd/ops/norm.h.
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(int64_t features, BatchNorm2dOptions options = {});
  Tensor forward(const Tensor& x) override { return forward(x, {}); }
  Tensor forward(const Tensor& x, const BatchNormFusion& fusion);
  using Module::operator();
  Tensor operator()(const Tensor& x, const BatchNormFusion& fusion) { return forward(x, fusion); }

  // What normalises in place of batch_norm(), with its arguments; see distributed/sync_batch_norm.h.
  using Normalization =
      std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                           const Tensor& running_var, const BatchNormOptions& options)>;
  void set_normalization(Normalization normalization) { normalization_ = std::move(normalization); }

  Tensor weight, bias;               // [features] or undefined
  Tensor running_mean, running_var;  // [features] or undefined
  Tensor num_batches_tracked;        // int64 [], or undefined

 protected:
  DType storage_dtype(DType dtype) const override { return itemsize(dtype) == 2 ? DType::Float32 : dtype; }

 private:
  BatchNorm2dOptions options_;
  Normalization normalization_ = batch_norm;
};

}  // namespace ringgrad::nn
