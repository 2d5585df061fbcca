// How kernels that add many numbers treat the 16-bit floating types: float32 copies go in, one
// float32 result comes out and is rounded once. Only kernels that cannot hold their sums in
// registers need it. Those for channel-blocked images can.
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

// Calls run.operator()<T>() for the two types that remain.
template <class Run>
void visit_wide(const char* operation, DType dtype, Run&& run) {
  if (dtype == DType::Float32) return run.template operator()<float>();
  if (dtype == DType::Float64) return run.template operator()<double>();
  throw_unsupported_dtype(operation, dtype, "float32 or float64");
}

// The same for channel-blocked images, which are float32 or bfloat16.
template <class Run>
void visit_blocked(const Tensor& images, Run&& run) {
  images.dtype() == DType::BFloat16 ? run.template operator()<bfloat16>()
                                    : run.template operator()<float>();
}

}  // namespace ringgrad::cpu
