// AutocastGuard: matrix products and convolutions in 16 bits, while parameters, and with them
// gradients and the optimizer, stay float32: what the program's --amp O1 does, for a loop of one's
// own.
//
//   { AutocastGuard autocast;  loss = cross_entropy(model(images), labels); }
//   loss.backward();
//
// While it lives, on this thread, linear, matmul, conv1d, conv2d and conv_transpose2d convert what
// they get from float32 to `dtype`; what follows computes in the dtype that it gets, and losses
// convert 16 bits back to float32. Unlike PyTorch's, arithmetic between a 16-bit and a float32
// tensor stays a DTypeError: to(x, dtype) says which is meant. float16 wants a GradScaler
// (nn/optim/mixed_precision.h).
#pragma once

#include <optional>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

class AutocastGuard {
 public:
  // Error unless it is a floating type of 16 bits, or none: then nothing is converted.
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

// This thread's; none: no guard.
inline std::optional<DType> autocast_dtype() { return AutocastGuard::current_; }

// For operations. Without a guard x itself; else x as a product wants it, or as a loss does.
Tensor autocast(const Tensor& x);
Tensor autocast_loss(const Tensor& x);

}  // namespace ringgrad
