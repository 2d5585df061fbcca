// Convolutions on Hopper's tensor cores (wgmma and TMA): which algorithm each gets, and its launch.
#pragma once

#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad::cuda {

enum class HopperConv {
  None,          // the other steps of ladders.h
  Border64,      // conv2d_border_64.cuh
  Border128,     // conv2d_border_128.cuh
  Im2col,        // conv2d_im2col.cuh
  Weight,        // conv2d_weight.cuh
  WeightBorder,  // conv2d_weight_border.cuh
};

// Returns the algorithm for a pass over channels-last images that begin at multiples of 16 bytes.
// Pure.
HopperConv hopper_conv(const ConvProblem& problem);
// Returns true if that is expected to be faster than mma.sync: if most of what is multiplied is not
// zeros, and enough multiprocessors have work. Pure; not yet measured.
bool prefers_hopper(const ConvProblem& problem);

// As in ladders.h. `algorithm` is hopper_conv()'s, or Im2col or Weight in place of one by border
// tiles. REQUIRES: w is KRSC in the dtype of the images.
void conv2d_hopper(HopperConv algorithm, Stream stream, const Tensor& y, const Tensor& x,
                   const Tensor& w, const Tensor& bias, const Conv2dOptions& options);
void conv2d_backward_input_hopper(HopperConv algorithm, Stream stream, const Tensor& dx,
                                  const Tensor& dy, const Tensor& w, const Tensor& addend,
                                  const Conv2dOptions& options);
// The same, with sums for the batch norm beside the convolution, in parts for batch_norm.h. They
// are those of y as it is stored, without a bias; or of dx, which is first rectified where `norm`
// says so. The number of parts follows from the shapes.
Tensor conv2d_moments_hopper(HopperConv algorithm, Stream stream, const Tensor& y, const Tensor& x,
                             const Tensor& w, const Conv2dOptions& options);
// A batch norm's input and its mean, and the bits of its output, or an undefined tensor without
// relu. x has the memory order of dx.
struct NormBefore {
  Tensor x;
  Tensor positive;
  Tensor mean;
};
Tensor conv2d_gradient_sums_hopper(HopperConv algorithm, Stream stream, const Tensor& dx,
                                   const Tensor& dy, const Tensor& w, const Tensor& addend,
                                   const NormBefore& norm, const Conv2dOptions& options);
void conv2d_backward_weight_hopper(HopperConv algorithm, Stream stream, const Tensor& dw,
                                   const Tensor& dy, const Tensor& x, const Conv2dOptions& options);
// Returns dw in parts of float32, [part, K, R × S, C], which are to be added in order. `w` has the
// shape of dw. The number of parts follows from the shapes.
Tensor weight_parts_hopper(HopperConv algorithm, Stream stream, const Shape& w, const Tensor& dy,
                           const Tensor& x, const Conv2dOptions& options);

}  // namespace ringgrad::cuda
