// Pooling of channel-blocked float32 and bfloat16 images on the CPU. A vector is 16 channels of one
// pixel, so windows of any shape and stride are plain loops. The arguments are those of the kernels
// of the same name in core/kernels.h, with every tensor channel-blocked. Private to core/cpu.
#pragma once

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad::cpu {

void max_pool2d_blocked(Stream stream, const Tensor& y, const Tensor& index, const Tensor& x,
                        const Pool2dOptions& options);
void max_pool2d_backward_blocked(Stream stream, const Tensor& dx, const Tensor& dy,
                                 const Tensor& index, const Pool2dOptions& options);
void avg_pool2d_blocked(Stream stream, const Tensor& y, const Tensor& x,
                        const Pool2dOptions& options);
void avg_pool2d_backward_blocked(Stream stream, const Tensor& dx, const Tensor& dy,
                                 const Pool2dOptions& options);
void adaptive_avg_pool2d_blocked(Stream stream, const Tensor& y, const Tensor& x);
void adaptive_avg_pool2d_backward_blocked(Stream stream, const Tensor& dx, const Tensor& dy);

}  // namespace ringgrad::cpu
