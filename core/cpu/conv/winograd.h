// Winograd convolutions: the forward pass and data gradient (one routine), and the weight gradient.
#pragma once

#include "ringgrad/core/cpu/conv/filters.h"
#include "ringgrad/core/device.h"

namespace ringgrad::conv {

// A convolution as the routine sees it: the forward pass, or the data gradient with x and y exchanged.
struct WinogradProblem {
  Stream stream;
  BlockedShape in, out;
  int64_t offset;  // output tile (0, 0) begins to read `offset` rows and columns outside the input
  FilterShape filters;
  Direction direction;
};

// y = the convolution of x with w [K, C, R, S], plus bias[channel of y] (null: none). T: float or bfloat16.
template <class Scheme, class T>
void winograd_convolution(const WinogradProblem& problem, const T* x, const float* w, const float* bias, T* y);

// dw [K, C, R, S] from x and dy, the input and output images of the forward pass. REQUIRES: direction Forward.
template <class Scheme, class T>
void winograd_weight_gradient(const WinogradProblem& problem, const T* x, const T* dy, float* dw);

}  // namespace ringgrad::conv
