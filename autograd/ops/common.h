// What the operations share: argument checks that throw typed errors in the operation's name, the
// two views that broadcasting needs, and the shape of every elementwise function. For autograd/ops
// and SyncBatchNorm.
#pragma once

#include "ringgrad/autograd/classifier_ops.h"
#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/classifier_kernels.h"

namespace ringgrad {

void check_defined(const char* operation, const Tensor& x);
void check_floating(const char* operation, const Tensor& x);  // defined, too
void check_dim(const char* operation, const char* argument, const Tensor& x, int dim);
// Defined, and of one dtype and on one device; throws DTypeError or DeviceError naming both.
void check_same_kind(const char* operation, const Tensor& a, const Tensor& b);
// A parameter used with x: on its device, in its dtype or in float32 where x has 16 bits (master
// weights: the dtype of the input decides in which precision a network computes).
void check_parameter(const char* operation, const Tensor& x, const Tensor& parameter);

// x seen with `shape`, dimensions of size 1 repeated without a copy (stride 0). REQUIRES: shape is
// a broadcast of x's.
Tensor broadcast_view(const Tensor& x, const Shape& shape);
// The sum of g over the dimensions along which `shape` was broadcast to g's: the gradient of
// broadcast_view.
Tensor sum_to(const Tensor& g, const Shape& shape);
// Applies f to gradients and operands and sums the result to `shape`. If there is anything to sum,
// 16-bit numbers are added as float32 and rounded once.
template <class F, class... Tensors>
Tensor summed_to(const Shape& shape, const F& f, const Tensor& g, const Tensors&... operands) {
  const DType wide = accumulator_dtype(g.dtype());
  if (g.shape() == shape || wide == g.dtype()) return sum_to(f(g, operands...), shape);
  return to(sum_to(f(to(g, wide), to(operands, wide)...), shape), g.dtype());
}

// These are recorded in the graph, and return x itself where nothing changes.
// x with strides: converted only if it is channel-blocked.
Tensor strided(const Tensor& x);
// x with strides and contiguous.
Tensor strided_contiguous(const Tensor& x);
// dy, channel-blocked or with strides as the saved tensor with which it is combined, element by
// element.
Tensor like(const Tensor& dy, const Tensor& saved);

// Batch norm's running statistics as a kernel is to update them, in place.
kernels::RunningStatistics running_statistics(const char* operation, const Tensor& running_mean,
                                              const Tensor& running_var,
                                              const BatchNormOptions& options);

// Channel-blocked images [N, C, H, W] as what their memory is, [N, ⌈C/16⌉, H W, 16]; others as they
// are.
Tensor memory_of(const Tensor& images);
// [O, N, I]: the dimensions before d, d itself, and those after it. REQUIRES: x contiguous.
Tensor around_dim(const Tensor& x, int d);

enum class Saves { Input, Output };  // which of the two the derivative is written in
// AnyLayout: zero maps to zero, forward and backward, and so the padding of the channel-blocked
// layout stays zero.
enum class Takes { AnyLayout, Strided };

// An elementwise function of x and numbers, by its two kernels: forward(y, x, numbers…) and
// backward(dx, dy, saved, numbers…).
template <class Forward, class Backward, class... Numbers>
Tensor elementwise(const char* name, const Tensor& x_, Takes takes, Saves saves,
                   const Forward& forward, const Backward& backward, Numbers... numbers) {
  OpScope scope(name);
  check_floating(name, x_);
  const Tensor x = takes == Takes::Strided ? strided(x_) : x_;
  Tensor y = empty_like(x);
  forward(y, x, numbers...);
  return differentiable(name, {x}, y,
                        [&backward, saved = save(saves == Saves::Output ? y : x),
                         numbers...](const Tensor& dy) -> Gradients {
                          Tensor dx = empty_like(saved.get());
                          backward(dx, like(dy, saved.get()), saved.get(), numbers...);
                          return {dx};
                        });
}

// x as a view can show it. A channel-blocked tensor becomes a strided one for good, whatever names
// it, so that what is written to the view is written to x. Not where the view has a history, and
// cannot be written to. The version goes along for a SavedTensor, which compares it.
Tensor viewable(const Tensor& x);

// Elements begin, …, begin + (length - 1) step along d, without history.
Tensor part_of(const Tensor& x, int d, int64_t begin, int64_t length, int64_t step = 1);

// x with its last two dimensions exchanged, without history.
Tensor swapped_matrix(const Tensor& x);

// a · b (+ bias) for strided operands of 2 or 3 dimensions, without history.
Tensor matrix_product(const Tensor& a, const Tensor& b, const Tensor& bias = {});

// Of no values there is nothing to normalise, but a weight and a bias get their gradient, which is
// 0. The first of the inputs has the result's shape.
Tensor normalized_nothing(const char* operation, const std::vector<Tensor>& inputs);

// A mask for x: bool, on its device.
void check_mask(const char* operation, const Tensor& mask, const Tensor& x);

}  // namespace ringgrad
