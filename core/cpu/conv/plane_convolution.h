// Convolutions of contiguous images by the register tiles of gemm.h, float32, with groups and any
// window: what a tap sees of a padded plane are its pixels from some offset on, so nothing is
// copied once for each tap as im2col does. Pixels are the rows of the left matrix, channels and
// taps the steps of the reduction, filters the columns. Sums have at most 128 terms, and are then
// added. Private to core/cpu.
#pragma once

#include "ringgrad/core/cpu/im2col.h"
#include "ringgrad/core/device.h"

namespace ringgrad::conv {

// y [n, groups k, p, q] = x [n, groups c, h, w] * w [groups k, c, r, s] + bias [groups k], if there
// is one.
void convolve_planes(Stream stream, const cpu::ConvShape& shape, const float* x, const float* w,
                     const float* bias, float* y);
// dx = the gradient + addend, if there is one.
void convolve_planes_backward(Stream stream, const cpu::ConvShape& shape, const float* dy,
                              const float* w, const float* addend, float* dx);
void plane_weight_gradient(Stream stream, const cpu::ConvShape& shape, const float* x,
                           const float* dy, float* dw);

}  // namespace ringgrad::conv
