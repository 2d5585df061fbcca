// Convolutions whose groups have one channel each: there is no sum over channels, and so no product
// of matrices. Every tap is a multiple of a shifted plane (one channel of one image), and sums stay
// in registers.
//
// Contiguous images, T float or double; a window of any size, stride, padding and dilation, any
// number of filters in a group. Results do not depend on the number of threads.
#pragma once

#include "ringgrad/core/cpu/im2col.h"
#include "ringgrad/core/device.h"

namespace ringgrad::conv {

// Whether these kernels are for it: not where windows reach, or jump, so far that pieces of planes
// (padded_plane.h) would mostly be copies of what others copy, or of what nobody sees.
bool is_depthwise(const cpu::ConvShape& shape);

// `bias` (null: none) [groups · k]; `addend` (null: none) is an image like dx that is added to it.
template <class T>
void depthwise(Stream stream, const cpu::ConvShape& shape, const T* x, const T* w, const T* bias,
               T* y);
template <class T>
void depthwise_backward_input(Stream stream, const cpu::ConvShape& shape, const T* dy, const T* w,
                              const T* addend, T* dx);
template <class T>
void depthwise_backward_weight(Stream stream, const cpu::ConvShape& shape, const T* x, const T* dy,
                               T* dw);

}  // namespace ringgrad::conv
