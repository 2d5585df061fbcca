// Convolution of contiguous NCHW tensors on the CPU: strips of im2col that fit the second-level cache, and a GEMM.
// The definition that faster convolutions are tested against, and the one that takes any floating dtype, stride,
// dilation and group. Arguments as for the kernels of these names in core/kernels.h. Private to core/cpu.
#pragma once

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad::cpu {

void conv2d_im2col(Stream stream, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
                   const Conv2dOptions& options);
void conv2d_im2col_backward_input(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& w,
                                  const Conv2dOptions& options);
void conv2d_im2col_backward_weight(Stream stream, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                   const Conv2dOptions& options);

}  // namespace ringgrad::cpu
