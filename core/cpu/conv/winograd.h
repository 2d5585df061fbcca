// Winograd convolutions: the forward pass and the data gradient (one routine), the weight gradient,
// and filters in the Winograd domain.
#pragma once

#include "ringgrad/core/cpu/conv/filters.h"
#include "ringgrad/core/cpu/conv/gemm.h"
#include "ringgrad/core/cpu/conv/transforms.h"

namespace ringgrad::conv {

// The product in which a scheme multiplies the transforms of images of T. F45's error is four times
// F25's, too large for products of bfloat16 pairs. But it takes 4 products for each output where
// F25 takes 9 (as many, if half of its tiles are empty).
template <class Scheme, class T>
using WinogradProduct =
    std::conditional_t<std::is_same_v<Scheme, F45>, Float32Product, ProductOf<T>>;

// A convolution as the routine computes it: the forward pass, or the data gradient with x and y
// exchanged.
struct WinogradProblem {
  Stream stream;
  BlockedShape in;
  BlockedShape out;
  int64_t offset;  // the first tile reads from `offset` rows and columns outside the input
  FilterShape filters;
  Direction direction;
};

// y = the convolution of x with w [K, C, R, S], plus bias[channel of y] and an image `addend` like
// y (null: none). T is float or bfloat16.
template <class Scheme, class T>
void winograd_convolution(const WinogradProblem& problem, const T* x, const float* w,
                          const float* bias, const T* addend, T* y);

// dw [K, C, R, S] from x and dy, the input and output images of the forward pass. REQUIRES:
// direction Forward.
template <class Scheme, class T>
void winograd_weight_gradient(const WinogradProblem& problem, const T* x, const T* dy, float* dw);

// Transformed filters are stored as [panel][factor][row][column of the panel], in words (see
// product.h). Each panel of 32 columns (the last may have 16) has 36 or 64 right matrices. One
// cache line separates the matrices. If their distance were a power of two, they would all start in
// the same cache set.
struct FactorLayout {
  int64_t factors;
  int64_t rows;    // channels summed over, with padding, divided by the terms of a word
  int64_t blocks;  // column blocks

  FactorLayout(int factor_edge, FilterShape shape, Direction d, int terms)
      : factors(factor_edge * factor_edge),
        rows(shape.rows(d) * kChannelBlock / terms),
        blocks(shape.columns(d)) {}
  int64_t panel_count() const { return panels(blocks); }
  int64_t plane(int64_t panel) const { return rows * panel_width(panel, blocks) + kChannelBlock; }
  int64_t panel_floats() const { return factors * plane(0); }  // the size of the widest panel
  int64_t offset(int64_t panel) const { return panel * factors * (rows * kPanel + kChannelBlock); }
  int64_t floats() const { return offset(panel_count() - 1) + factors * plane(panel_count() - 1); }
};

// Transforms one panel into `factors`. `scratch` has kFilterScratch floats. Scheme: see
// transforms.h.
inline constexpr int64_t kFilterScratch = 2 * 25 * kChannelBlock * kChannelBlock;
template <class Scheme, class Product>
void transform_filter_panel(const float* w, FilterShape shape, Direction direction, int64_t panel,
                            float* scratch, float* factors);

}  // namespace ringgrad::conv
