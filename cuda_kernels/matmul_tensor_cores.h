// The last step of the ladder in matmul.cu: 16-bit matrices on tensor cores.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad::cuda {

// Whether c = a · b can be computed by matmul_tensor_cores: 16-bit types, one dimension of a and of b with stride 1.
bool tensor_cores_support(const Tensor& c, const Tensor& a, const Tensor& b);
void matmul_tensor_cores(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias);

}  // namespace ringgrad::cuda
