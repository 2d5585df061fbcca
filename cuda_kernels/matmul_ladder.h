// The steps from the obvious matrix product to the fast one, for the benchmark and the tests, which compare them.
// kernels::matmul picks the highest that applies.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad::cuda {

enum class MatmulStep {
  Naive,         // one thread per element of c; neighbouring threads on neighbouring rows
  Coalesced,     // neighbouring threads on neighbouring columns
  SharedTile,    // tiles of a and b in shared memory, read 32 times each
  RegisterTile,  // 8 × 8 elements of c per thread, in registers
  Vectorised,    // and 16 bytes per load
  TensorCores,   // warps multiply 16-bit matrices: mma.sync, ldmatrix, cp.async
};
inline constexpr int kMatmulSteps = 6;
const char* name(MatmulStep step);

// Whether a step can compute c = a · b + bias. See core/kernels.h for the shapes.
bool supports(MatmulStep step, const Tensor& c, const Tensor& a, const Tensor& b);
// REQUIRES: supports(step, c, a, b).
void matmul(MatmulStep step, Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias);

}  // namespace ringgrad::cuda
