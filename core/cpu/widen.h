// Kernels that add many numbers convert the 16-bit floating types: they read float32 copies and
// write one float32 result, which is rounded once. Only kernels that cannot hold their sums in
// registers need this. Those for channel-blocked images can.
#pragma once

#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {

inline bool is_16_bit(const Tensor& x) {
  return x.dtype() == DType::Float16 || x.dtype() == DType::BFloat16;
}

inline Tensor widen(const Tensor& x) { return in_dtype(x, DType::Float32); }

// Runs body(wide) with a float32 tensor of y's shape, and rounds what it wrote into y.
template <class Body>
void narrow_into(const Tensor& y, Body&& body) {
  const Tensor wide = empty(y.shape(), {DType::Float32, y.device()});
  body(wide);
  kernels::copy(y, wide);
}

// Calls run.operator()<T>() for float and double, the two types that remain.
template <class Run>
void visit_wide(const char* operation, DType dtype, Run&& run) {
  if (dtype == DType::Float32) return run.template operator()<float>();
  if (dtype == DType::Float64) return run.template operator()<double>();
  throw_unsupported_dtype(operation, dtype, "float32 or float64");
}

// Does the same for channel-blocked images, which are float32 or bfloat16.
template <class Run>
void visit_blocked(const Tensor& images, Run&& run) {
  images.dtype() == DType::BFloat16 ? run.template operator()<bfloat16>()
                                    : run.template operator()<float>();
}

}  // namespace ringgrad::cpu
