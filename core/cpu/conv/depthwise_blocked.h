// Depthwise convolutions of channel-blocked images. A vector holds neighbouring channels of a
// pixel, so a tap is a product of two vectors. No border, stride or size of an image leaves lanes
// empty.
//
// x [N, ⌈C/16⌉, H, W, 16] and y and dy [N, ⌈C/16⌉, P, Q, 16] are float or bfloat16. w, dw [C, R, S]
// and bias [C] are float. Windows have any size, stride, padding and dilation; a group has one
// filter. Results do not depend on the number of threads.
#pragma once

#include "ringgrad/core/cpu/im2col.h"
#include "ringgrad/core/device.h"

namespace ringgrad::conv {

// `bias` and `addend` may be null. `addend` is an image like dx that is added to it before
// rounding.
template <class T>
void depthwise_blocked(Stream stream, const cpu::ConvShape& shape, const T* x, const float* w,
                       const float* bias, T* y);
template <class T>
void depthwise_blocked_backward_input(Stream stream, const cpu::ConvShape& shape, const T* dy,
                                      const float* w, const T* addend, T* dx);
template <class T>
void depthwise_blocked_backward_weight(Stream stream, const cpu::ConvShape& shape, const T* x,
                                       const T* dy, float* dw);

}  // namespace ringgrad::conv
