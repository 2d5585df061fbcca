// The steps from the obvious convolution to the fast one, for the benchmark and the tests, which compare them.
// kernels::conv2d and its gradients pick the highest that applies.
#pragma once

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad::cuda {

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
