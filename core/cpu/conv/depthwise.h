// Convolutions whose groups have one channel each. There is no sum over channels, and so no matrix
// product. Every tap is a multiple of a shifted plane (one channel of one image), and sums stay in
// registers.
//
// Images are contiguous; T is float or double. Windows have any size, stride, padding and dilation,
// and groups any number of filters. Results do not depend on the number of threads.
#pragma once

#include "ringgrad/core/cpu/im2col.h"
#include "ringgrad/core/device.h"

namespace ringgrad::conv {

// Returns true if these kernels suit the convolution. They do not if windows reach or step so far
// that pieces of planes (padded_plane.h) would mostly copy pixels that other pieces copy too, or
// that no output uses.
bool is_depthwise(const cpu::ConvShape& shape);

// `bias` [groups · k] and `addend` may be null. `addend` is an image like dx that is added to it.
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
