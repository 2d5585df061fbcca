// What convolutions share with their transposes. Private to autograd/ops.
#pragma once

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

// `image` and `kernel` are the sizes of x and w [N, C, H, W].
void check_conv_geometry(const char* operation, const Shape& image, const Shape& kernel,
                         Pair stride, Pair padding, Pair dilation, int64_t groups);

// x [N, C, H, W], w [K, C/groups, R, S], b [channels] or undefined: kinds and dimensions.
void check_conv_operands(const char* operation, const Tensor& x, const Tensor& w, const Tensor& b,
                         int64_t channels);

// A number for each channel of their memory, that of channel k at place k.
Tensor for_channels(const Tensor& images, DType dtype);

// Sums dy [N, K, P, Q] over all but the channels. The result [K] has dy's dtype, or a wider one.
Tensor channel_sums(const Tensor& dy, DType dtype);

// [N, C, H, W] → [N, C H W], differentiable.
Tensor rows_of_images(const Tensor& x);

}  // namespace ringgrad
