// Convolutions of contiguous images by the register tiles of gemm.h, in float32, with groups and
// any window. A tap reads the pixels of a padded plane from some offset on. So nothing is copied
// once for each tap, as im2col does. Pixels are the rows of the left matrix, channels and taps the
// steps of the reduction, and filters the columns. Sums have at most 128 terms, and are then added.
// Private to core/cpu.
#pragma once

#include "ringgrad/core/cpu/im2col.h"
#include "ringgrad/core/device.h"

namespace ringgrad::conv {

// y [n, groups k, p, q] = x [n, groups c, h, w] * w [groups k, c, r, s] + bias [groups k]. The bias
// may be null.
void convolve_planes(Stream stream, const cpu::ConvShape& shape, const float* x, const float* w,
                     const float* bias, float* y);
// dx = the gradient + addend. The addend may be null.
void convolve_planes_backward(Stream stream, const cpu::ConvShape& shape, const float* dy,
                              const float* w, const float* addend, float* dx);
void plane_weight_gradient(Stream stream, const cpu::ConvShape& shape, const float* x,
                           const float* dy, float* dw);

}  // namespace ringgrad::conv
