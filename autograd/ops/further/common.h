// Code that these operations share and no network of the book needs. Private to
// autograd/ops/further.
#pragma once

#include "ringgrad/autograd/ops/common.h"

namespace ringgrad {

// sum_to() and broadcast_view() of gradients: recorded where a graph of them is asked for.
Tensor summed(const Tensor& g, const Shape& shape);
Tensor repeated(const Tensor& g, const Shape& shape);
// Applies f to gradients and operands and sums the result to `shape`. If there is anything to sum,
// 16-bit numbers are added as float32 and rounded once.
template <class F, class... Tensors>
Tensor summed_to(const Shape& shape, const F& f, const Tensor& g, const Tensors&... operands) {
  const DType wide = accumulator_dtype(g.dtype());
  if (g.shape() == shape || wide == g.dtype()) return summed(f(g, operands...), shape);
  return to(summed(f(to(g, wide), to(operands, wide)...), shape), g.dtype());
}

// [O, N, I]: the dimensions before d, d itself, and those after it. REQUIRES: x contiguous.
Tensor around_dim(const Tensor& x, int d);

// dropout() with numbers that were drawn before. Its gradient is the same function of dy.
Tensor dropped(const Tensor& x, const Tensor& state, double p);

// A mask for x: bool, on its device.
void check_mask(const char* operation, const Tensor& mask, const Tensor& x);

// ---- where a graph of the gradients is asked for ------------------------------------------------
// For save(): output number i > 0. kSavedOutput is number 0.
constexpr int saved_output(int i) { return kSavedUnsaid - i; }
// Returns the shape and dtype of input `i` of the running closure; nullptr if it wants no gradient.
const OutputInfo* wanted_input(size_t i);
// The gradients of a convolution without a bias, by its images and its weights.
Tensor conv2d_input_gradient(const Tensor& dy, const Tensor& w, const Shape& x,
                             const Conv2dOptions& options);
Tensor conv2d_weight_gradient(const Tensor& dy, const Tensor& x, const OutputInfo& w,
                              const Conv2dOptions& options);
Tensor max_pool2d_gradient(const Tensor& dy, const Tensor& index, const Shape& images);
// As Twice::batch_norm.
Gradients batch_norm_gradients(const Tensor& dy, const Tensor& x, const Tensor& weight,
                               const Tensor& y, const Tensor& mean, const Tensor& var, double eps);
// d(result)/d(loss[n]) as row_scale() gives it, [rows, 1], 0 in rows that are ignored; and q [N, C]
// like the logits, with which the loss of a row is -Σ q log p: the classes' parts by their weights.
Tensor row_gradient(const Tensor& dy, const Tensor& weight_sum, const Tensor& target,
                    int64_t ignore_index);
Tensor class_parts(const Tensor& target, const Tensor& class_weight, const Tensor& like,
                   const kernels::CrossEntropyOptions& options);

}  // namespace ringgrad
