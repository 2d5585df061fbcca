// Depthwise convolutions of channel-blocked images: a vector holds neighbouring channels of a
// pixel, so a tap is a vector that is multiplied by a vector, and no border, stride or size of an
// image leaves lanes empty.
//
// x [N, ⌈C/16⌉, H, W, 16] and y and dy [N, ⌈C/16⌉, P, Q, 16] are float or bfloat16, w, dw [C, R, S]
// and bias [C] float. A window of any size, stride, padding and dilation; one filter in a group.
// Results do not depend on the number of threads.
#pragma once

#include "ringgrad/core/cpu/im2col.h"
#include "ringgrad/core/device.h"

namespace ringgrad::conv {

// `bias` may be null; `addend` (null: none) is an image like dx that is added to it before it is
// rounded.
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
