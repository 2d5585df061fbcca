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
// that they would only travel to memory and back (512 channels). How many floats they are.
template <class Product>
bool keeps_factors(const WinogradProblem& problem);
template <class Product>
int64_t factor_floats(const WinogradProblem& problem);
template <class Scheme, class Product>
void transform_filters(const WinogradProblem& problem, float* factors);

// y = the convolution of x. The prologue applies to x, the epilogue to y. T: float, or bfloat16 with BFloat16Product.
template <class Scheme, class Product, class T>
void winograd_convolution(const WinogradProblem& problem, const T* x, T* y, const Prologue& prologue,
                          const Epilogue& epilogue);

// dw [K, C, R, S] from x and dy, the input and output images of the forward pass; the prologue applies to x. Only
// stream, in, out, offset and filters of the problem are used.
template <class Scheme, class Product, class T>
void winograd_weight_gradient(const WinogradProblem& problem, const T* x, const T* dy, float* dw,
                              const Prologue& prologue);

}  // namespace ringgrad::conv
