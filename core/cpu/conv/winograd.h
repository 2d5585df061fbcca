// Winograd convolutions: the forward pass and data gradient (one routine), and the weight gradient.
#pragma once

#include "core/cpu/conv/filters.h"
#include "core/cpu/conv/fusion.h"
#include "core/stream.h"

namespace ringgrad::conv {

// A convolution as the routine sees it: the forward pass, or the data gradient with x and y exchanged.
struct WinogradProblem {
  Stream stream;
  BlockedShape in, out;
  int64_t offset;  // output tile (0, 0) begins to read `offset` rows and columns outside the input
  FilterShape filters;
  Direction direction;
  const float* w;        // the plain filters
  const float* factors;  // transformed ones, see FactorLayout; null: they are transformed on the way
};

// Whether the filters had better be transformed once per step and given as factors: not where there are so many of them
// that they would only travel to memory and back (512 channels).
template <class Scheme>
bool keeps_factors(const WinogradProblem& problem);

template <class Scheme>
void transform_filters(const WinogradProblem& problem, float* factors);

// y = the convolution of x. The prologue applies to x, the epilogue to y.
template <class Scheme>
void winograd_convolution(const WinogradProblem& problem, const float* x, float* y, const Prologue& prologue,
                          const Epilogue& epilogue);

// dw [K, C, R, S] from x and dy, the input and output images of the forward pass; the prologue applies to x. Only
// stream, in, out, offset and filters of the problem are used.
template <class Scheme>
void winograd_weight_gradient(const WinogradProblem& problem, const float* x, const float* dy, float* dw,
                              const Prologue& prologue);

}  // namespace ringgrad::conv
