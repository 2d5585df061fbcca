// The layers of a convolutional network: modules around the operations of autograd/ops.h. They own
// parameters and have PyTorch's names and initial values. All take their options as designated
// initialisers: nn::Conv2d conv{1, 16, 5, {.stride = 2}}.
#pragma once

#include <functional>

#include "ringgrad/autograd/classifier_ops.h"
#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

// ---- linear -------------------------------------------------------------------------------------
struct LinearOptions {
  bool bias = true;
};

// y = x weightᵀ + bias: x [..., in_features], y [..., out_features].
class Linear : public Module {
 public:
  Linear(Int64 in_features, Int64 out_features, LinearOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  // [out, in], [out] or undefined
  Parameter weight;
  Parameter bias;
};

// ---- convolutions -------------------------------------------------------------------------------
// The fields of geometry.h's struct, and bias. They are repeated because designated initialisers
// cannot name a base's fields.
struct Conv2dOptions {
  OnlyByName only_by_name = OnlyByName();
  Pair stride = 1;
  Pair padding = 0;
  Pair dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

// x [N, in_channels, H, W] → [N, out_channels, P, Q]. Both numbers of channels are multiples of
// groups.
class Conv2d : public Module {
 public:
  Conv2d(Int64 in_channels, Int64 out_channels, Pair kernel, Conv2dOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  // [out, in/groups, R, S], [out] or undefined
  Parameter weight;
  Parameter bias;

 private:
  friend struct ConvBatchNorm;
  ringgrad::Conv2dOptions options_;
};

// ---- normalisation ------------------------------------------------------------------------------
struct BatchNorm2dOptions {
  double eps = 1e-5;
  // The weight of the new value in the running statistics.
  double momentum = 0.1;
  // True if there are a weight and a bias.
  bool affine = true;
  // False leaves out the bias and keeps the weight.
  bool bias = true;
  // Without them evaluation uses the batch's statistics, too.
  bool track_running_stats = true;
};

// Further operations in the same pass over the data: bn(x, {.activation = Activation::Relu,
// .residual = shortcut}).
struct BatchNormFusion {
  Activation activation = Activation::None;
  // It is added before the activation.
  Tensor residual = {};
  // The side of the windows of a max_pool2d after the activation; 0 means no pooling.
  int64_t max_pool = 0;
};

// Normalises each channel of x: over the batch in training, and by the running statistics in
// evaluation. See batch_norm() in autograd/ops.h.
class BatchNorm : public Module {
 public:
  Tensor forward(const Tensor& x) override { return forward(x, {}); }
  Tensor forward(const Tensor& x, const BatchNormFusion& fusion);
  using Module::operator();
  Tensor operator()(const Tensor& x, const BatchNormFusion& fusion) {
    return after_hooks(x, forward(x, fusion));
  }

  // A function with batch_norm()'s arguments that replaces it; see distributed/sync_batch_norm.h.
  using Normalization = std::function<Tensor(
      const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
      const Tensor& running_var, const BatchNormOptions& options)>;
  void set_normalization(Normalization normalization) { normalization_ = std::move(normalization); }

  // [features] or undefined
  Parameter weight;
  Parameter bias;
  // [features] or undefined
  Buffer running_mean;
  Buffer running_var;
  Buffer num_batches_tracked;  // int64 [], or undefined
  std::string extra_repr() const override;

 protected:
  BatchNorm(const char* name, int64_t features, BatchNorm2dOptions options);
  virtual void check_shape(const Tensor& x) const = 0;
  void follow_members(const Module& source) override;
  DType storage_dtype(DType dtype) const override {
    return itemsize(dtype) == 2 ? DType::Float32 : dtype;
  }

 private:
  friend struct ConvBatchNorm;
  BatchNorm2dOptions options_;
  int64_t features_;
  Normalization normalization_ = batch_norm;
};

class BatchNorm2d : public BatchNorm {  // x [N, features, H, W]
 public:
  explicit BatchNorm2d(Int64 features, BatchNorm2dOptions options = {})
      : BatchNorm("BatchNorm2d", features, options) {}

 private:
  void check_shape(const Tensor& x) const override;
};

// Returns norm(conv(x), fusion). nn/conv_batch_norm.cpp replaces it by a function that computes
// both at once where a device is faster so.
inline constinit auto conv_batch_norm =
    +[](Conv2d& conv, BatchNorm& norm, const Tensor& x, const BatchNormFusion& fusion) {
      return norm(conv(x), fusion);
    };

}  // namespace ringgrad::nn
