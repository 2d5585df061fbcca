// AutocastGuard runs matrix products and convolutions in 16 bits. Parameters stay float32, and so
// do gradients and the optimizer. It does for a user's own loop what the program's --amp O1 does.
//
//   { AutocastGuard autocast;  loss = cross_entropy(model(images), labels); }
//   loss.backward();
//
// While it lives, on this thread, linear, matmul, conv1d, conv2d and conv_transpose2d convert
// float32 inputs to `dtype`. Later operations compute in the dtype of their inputs, and losses
// convert 16 bits back to float32. Unlike in PyTorch, arithmetic between a 16-bit and a float32
// tensor remains a DTypeError: to(x, dtype) states which one is meant. float16 needs a GradScaler
// (nn/optim/mixed_precision.h).
#pragma once

#include <optional>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

class AutocastGuard {
 public:
  // Throws Error unless dtype is a floating type of 16 bits. nullopt converts nothing.
  explicit AutocastGuard(std::optional<DType> dtype = DType::BFloat16);
  ~AutocastGuard() { current_ = previous_; }
  AutocastGuard(const AutocastGuard&) = delete;

 private:
  friend Tensor autocast(const Tensor& x);
  friend Tensor autocast_loss(const Tensor& x);
  friend std::optional<DType> autocast_dtype();
  static inline constinit thread_local std::optional<DType> current_ = std::nullopt;
  std::optional<DType> previous_;
};

// Returns this thread's dtype, or nullopt without a guard.
inline std::optional<DType> autocast_dtype() { return AutocastGuard::current_; }

// Operations call these. Without a guard they return x; with one they convert it for a product, or
// for a loss.
Tensor autocast(const Tensor& x);
Tensor autocast_loss(const Tensor& x);

}  // namespace ringgrad
