// The steps from the obvious matrix product, and the obvious convolution, to the fast one, by name:
// for tests, which call them with operands of any layout. kernels::matmul, kernels::conv2d and its
// gradients pick the highest that applies. What each does stands in its line of the ladder
// (core/kernels/ladder.h) in matmul.cu and conv2d.cu.
#pragma once

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad::cuda {

// ---- matrix products ----------------------------------------------------------------------------

enum class MatmulStep {
  Naive,
  Coalesced,
  SharedTile,
  RegisterTile,
  Vectorised,
  Fragments,
  Ldmatrix,
  PaddedRows,
  Stages,
  TensorCores,
};
const char* name(MatmulStep step);

// Whether a step can compute c = a · b + bias. See core/kernels.h for the shapes.
bool supports(MatmulStep step, const Tensor& c, const Tensor& a, const Tensor& b);
// REQUIRES: supports(step, c, a, b).
void matmul(MatmulStep step, Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
            const Tensor& bias);

// The steps from there to the last, in ladders/matmul_fragments.cu. They take 16-bit types where a
// and b are contiguous, M and N multiples of 64, and K of 32.
bool fragments_support(const Tensor& c, const Tensor& a, const Tensor& b);
void matmul_fragments(MatmulStep step, Stream stream, const Tensor& c, const Tensor& a,
                      const Tensor& b, const Tensor& bias);

// The last step, in a file of its own (matmul_tensor_cores.cu), because it takes as long to compile
// as all the others. It takes 16-bit types where one dimension of a and one of b have stride 1.
bool tensor_cores_support(const Tensor& c, const Tensor& a, const Tensor& b);
void matmul_tensor_cores(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                         const Tensor& bias);

// ---- convolutions -------------------------------------------------------------------------------

enum class ConvStep {
  Direct,
  ImplicitGemm,
  TensorCores,  // 16-bit types in NHWC and KRSC
};
const char* name(ConvStep step);

// Whether a step can compute with these tensors as they lie in memory; for gradients dx, dw and dy
// stand for x, w and y. See core/kernels.h for the shapes; here w has the dtype of the images, but
// dw and the bias any floating one.
bool supports(ConvStep step, const Tensor& x, const Tensor& w, const Tensor& y,
              const Conv2dOptions& options);
// REQUIRES of all three: supports(step, …) for their operands; results may have any strides. An
// addend is aligned as the images are.
void conv2d(ConvStep step, Stream stream, const Tensor& y, const Tensor& x, const Tensor& w,
            const Tensor& bias, const Conv2dOptions& options);
void conv2d_backward_input(ConvStep step, Stream stream, const Tensor& dx, const Tensor& dy,
                           const Tensor& w, const Tensor& addend, const Conv2dOptions& options);
void conv2d_backward_weight(ConvStep step, Stream stream, const Tensor& dw, const Tensor& dy,
                            const Tensor& x, const Conv2dOptions& options);

}  // namespace ringgrad::cuda
