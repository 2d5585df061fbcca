// Two-dimensional convolution on channel-blocked images, for training: forward pass, data gradient,
// weight gradient.
//
//   x      [N, ⌈C/16⌉, H, W, 16]      float32, or bfloat16 (see ProductOf)
//   y, dy  [N, ⌈K/16⌉, OH, OW, 16]    likewise
//   w, dw  [K, C, R, S]               float32
//
// Images are aligned to their element (to 64 bytes for full speed). Their padding channels are
// zero, in and out, unless NaN or infinity reaches them. Outputs are overwritten. Results do not
// depend on the number of threads. The caller has made the geometry with conv2d_geometry. Several
// threads may call every function at once. All throw OutOfMemoryError.
#pragma once

#include "ringgrad/core/cpu/conv/filters.h"
#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad::conv {

// Relative errors (rms). float32: 2e-7 to 8e-7 direct, 5e-7 to 2e-6 Winograd. bfloat16 with
// products of pairs: 0.3 % direct, 1 % Winograd 3 x 3, 0.2 % Winograd 5 x 5 (which multiplies in
// float32). Weight gradients of bfloat16 images have float32's errors, except Winograd's with
// products of pairs: 0.05 %. plan.h chooses the method: a Winograd scheme that fits the geometry,
// Direct, or Tiles for bfloat16.

// Forward computes y from x, w and bias [K] (null: none). BackwardInput computes dx from dy and w;
// dy is passed as x and dx as y. T is float or bfloat16. `addend` (null: none) is an image like y
// that is added to it before rounding.
template <class T>
void convolve(Stream stream, const Conv2dGeometry& geometry, ConvMethod method, Direction direction,
              const T* x, const float* w, const float* bias, const T* addend, T* y);
template <class T>
void weight_gradient(Stream stream, const Conv2dGeometry& geometry, ConvMethod method, const T* x,
                     const T* dy, float* dw);

// The same for first layers. x is [N, C, H, W] contiguous float32; y and dy are channel-blocked.
// The pass is always forward and direct, and products are float32 whatever T is.
template <class T>
void convolve_nchw(Stream stream, const Conv2dGeometry& geometry, const float* x, const float* w,
                   const float* bias, T* y);
template <class T>
void weight_gradient_nchw(Stream stream, const Conv2dGeometry& geometry, const float* x,
                          const T* dy, float* dw);

}  // namespace ringgrad::conv
