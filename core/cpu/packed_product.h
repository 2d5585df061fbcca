// The matrix product of float32 numbers by the register tiles under our convolutions (conv/gemm.h). Private to
// core/cpu.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad::cpu {

// Whether that is faster than Eigen's: not for vectors and other thin matrices, which are read faster than copied.
bool suits_packed_product(const Tensor& c, int64_t terms);

// c [B, M, N] = a [B, M, K] · b [B, K, N] + bias [N], where there is one; c is contiguous, a and b have any strides.
// An element is the sum of the sums of at most 128 terms each, in order: it depends on nothing else, not on the number
// of threads, nor on other elements. REQUIRES: float32.
void packed_product(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias);

}  // namespace ringgrad::cpu
