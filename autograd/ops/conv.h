// Code that convolutions share with transposed ones, and pools in part. Private to autograd/ops.
#pragma once

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Checks the sizes of a window that moves over an image: none is so large that a product of two
// overflows. Pools have it, too. `image` and `kernel` are the shapes of x and w [N, C, H, W].
void check_window(const char* operation, const Shape& image, const Shape& kernel, Pair stride,
                  Pair padding, Pair dilation, int64_t groups);

// Checks the dtypes, devices and dimensions of x [N, C, H, W], w [K, C/groups, R, S] and b
// [channels] or undefined.
void check_conv_operands(const char* operation, const Tensor& x, const Tensor& w, const Tensor& b,
                         int64_t channels);

// Returns an array with one number for each channel in the images' memory; channel k is at position
// k.
Tensor for_channels(const Tensor& images, DType dtype);

// Sums dy [N, K, P, Q] over all but the channels. The result [K] has dy's dtype, or a wider one.
Tensor channel_sums(const Tensor& dy, DType dtype);

// [N, C, H, W] → [N, C H W], differentiable.
Tensor rows_of_images(const Tensor& x);

}  // namespace ringgrad
