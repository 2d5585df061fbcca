// Normalisations.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

enum class Activation : uint8_t { None, Relu };

struct BatchNormOptions {
  bool training = true;
  double momentum = 0.1;  // of the new value in the running statistics
  double eps = 1e-5;
  Activation activation = Activation::None;
  Tensor residual = {};  // added before the activation; same shape as x
};

// y = act(weight (x - mean) / sqrt(var + eps) + bias + residual), per channel (Ioffe & Szegedy 2015). One node for
// normalisation, addition and activation: they read and write each byte once.
//   x [N, C, ...]; weight, bias [C] or undefined; running_mean, running_var [C] or undefined, float32 (float64 for
//   float64 x). In training mean and var are the batch's (var biased), and the running ones are updated in place, with
//   the unbiased variance: running = (1 - momentum) running + momentum batch. Throws in training with one value per
//   channel, whose variance would be 0/0. In evaluation the running ones are used.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormOptions& options = {});

// What batch_norm() requires of its arguments, but for the number of values per channel; `operation` is who says it.
void check_batch_norm(const char* operation, const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const Tensor& running_mean, const Tensor& running_var, const BatchNormOptions& options);
// running = (1 - momentum) running + momentum · scale · batch, in place; nothing where running is undefined.
void update_running(const char* operation, const Tensor& running, const Tensor& batch, double momentum, double scale);

// Over the last dimensions, which have `normalized_shape` (Ba et al. 2016); weight, bias of that shape, in the dtype of
// x or in float32 beside 16 bits, or undefined.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

}  // namespace ringgrad
