// The steps from the obvious matrix product, and the obvious convolution, to the fast one: for the benchmark and the
// tests, which compare them. kernels::matmul, kernels::conv2d and its gradients pick the highest step that applies.
#pragma once

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad::cuda {

// ---- matrix products ----------------------------------------------------------------------------------------------

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

// The last step, in a file of its own (matmul_tensor_cores.cu), because it takes as long to compile as all the others.
// It takes 16-bit types where one dimension of a and one of b have stride 1.
bool tensor_cores_support(const Tensor& c, const Tensor& a, const Tensor& b);
void matmul_tensor_cores(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias);

// ---- convolutions -------------------------------------------------------------------------------------------------

enum class ConvStep {
  Direct,        // one thread per element of the result
  ImplicitGemm,  // tiles in shared memory and registers
  TensorCores,   // 16-bit types in NHWC and KRSC
};
inline constexpr int kConvSteps = 3;
const char* name(ConvStep step);

// Whether a step can compute with these tensors as they lie in memory; for gradients dx, dw and dy stand for x, w and
// y. See core/kernels.h for the shapes; here w has the dtype of the images, but dw and the bias any floating one.
bool supports(ConvStep step, const Tensor& x, const Tensor& w, const Tensor& y, const Conv2dOptions& options);
// REQUIRES of all three: supports(step, …) for their operands; results may have any strides.
void conv2d(ConvStep step, Stream stream, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
            const Conv2dOptions& options);
void conv2d_backward_input(ConvStep step, Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& w,
                           const Conv2dOptions& options);
void conv2d_backward_weight(ConvStep step, Stream stream, const Tensor& dw, const Tensor& dy, const Tensor& x,
                            const Conv2dOptions& options);

}  // namespace ringgrad::cuda
