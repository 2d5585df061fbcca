// Convolutions of images (cross-correlations, as in every framework), [N, C, H, W]. Weights and biases have the images'
// dtype, or stay float32 where that has 16 bits. The result is in the layout in which its device convolves fastest.
//
// Winograd's algorithms carry a NaN or an infinity to all outputs of its tile, which are more than those that see the
// pixel; where that matters, choose ConvAlgorithm::Direct (core/kernels/conv_algorithm.h).
#pragma once

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

// x [N, C, H, W], w [K, C/groups, R, S], b [K] or undefined → [N, K, P, Q], P = ⌊(H + 2 pad - dil (R - 1) - 1)/stride⌋
// + 1.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b = {}, const Conv2dOptions& options = {});

// The gradient of conv2d with respect to its input, as an operation: x [N, K, P, Q], w [K, C/groups, R, S], b [C],
// → [N, C, H, W], H = (P - 1) stride - 2 pad + dil (R - 1) + output_padding + 1 (Zeiler et al. 2010).
struct ConvTranspose2dOptions {
  Pair stride = 1;
  Pair padding = 0;
  Pair output_padding = 0;  // less than stride or dilation: which of the sizes that conv2d maps to x's is meant
  Pair dilation = 1;
  int64_t groups = 1;
};
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& b = {},
                        const ConvTranspose2dOptions& options = {});

}  // namespace ringgrad
