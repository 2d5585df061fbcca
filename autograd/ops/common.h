// Code that the operations share: argument checks that throw typed errors in the operation's name,
// the two functions that broadcasting needs, and the structure of every elementwise function. For
// autograd/ops and SyncBatchNorm.
#pragma once

#include "ringgrad/autograd/classifier_ops.h"
#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/autograd/twice.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/classifier_kernels.h"

namespace ringgrad {

void check_floating(const char* operation, const Tensor& x);  // also checks that x is defined
void check_dim(const char* operation, const char* argument, const Tensor& x, int dim);
// Checks that both are defined and have one dtype and device. Throws DTypeError or DeviceError that
// names both.
void check_same_kind(const char* operation, const Tensor& a, const Tensor& b);
// Checks a parameter used with x: it is on x's device, and in x's dtype, or in float32 if x has 16
// bits. (With such master weights the input's dtype decides the precision of a network.)
void check_parameter(const char* operation, const Tensor& x, const Tensor& parameter);

// Returns x with `shape`; dimensions of size 1 are repeated without a copy (stride 0). REQUIRES: x
// broadcasts to shape.
Tensor broadcast_view(const Tensor& x, const Shape& shape);
// Sums g over the dimensions along which `shape` was broadcast to g's shape. This is the gradient
// of broadcast_view.
Tensor sum_to(const Tensor& g, const Shape& shape);
// Returns dx, which is linear in dy. If a graph of the gradients is recorded, the backward of dx
// applies `forward` to the gradient that arrives.
template <class Forward>
Tensor linear_gradient(const char* name, const Tensor& dy, Tensor dx, Forward forward) {
  if (!grad_enabled() || dx.is_same(dy)) return dx;
  return differentiable(name, {dy}, dx,
                        [forward](const Tensor& g) -> Gradients { return {forward(g)}; });
}

// These are recorded in the graph, and return x if nothing changes.
// Returns x with strides: only a channel-blocked x is converted.
Tensor strided(const Tensor& x);
// Returns x with strides and contiguous.
Tensor strided_contiguous(const Tensor& x);
// Returns dy in the layout of the saved tensor with which it is combined, element by element:
// channel-blocked or strided.
Tensor like(const Tensor& dy, const Tensor& saved);

// Returns batch norm's running statistics in the form in which a kernel updates them in place.
kernels::RunningStatistics running_statistics(const char* operation, const Tensor& running_mean,
                                              const Tensor& running_var,
                                              const BatchNormOptions& options);

// Returns channel-blocked images [N, C, H, W] in the shape of their memory, [N, ⌈C/16⌉, H W, 16],
// and other images unchanged.
Tensor memory_of(const Tensor& images);

// Returns the input of a matrix product or a convolution in the dtype in which this thread computes
// it, which is its own. autocast.cpp replaces this function before main.
inline constinit auto product_input = +[](const Tensor& x) { return x; };

enum class Saves { Input, Output };  // the one that the derivative is written in
// AnyLayout: zero maps to zero, forward and backward, so the padding of the channel-blocked layout
// stays zero.
enum class Takes { AnyLayout, Strided };

// Makes an elementwise function of x and numbers from its two kernels: forward(y, x, numbers…) and
// backward(dx, dy, saved, numbers…).
template <class Forward, class Backward, class... Numbers>
Tensor elementwise(const char* name, const Tensor& x_, Takes takes, Saves saves,
                   const Forward& forward, const Backward& backward, Numbers... numbers) {
  OpScope scope(name);
  check_floating(name, x_);
  const Tensor x = takes == Takes::Strided ? strided(x_) : x_;
  Tensor y = empty_like(x);
  forward(y, x, numbers...);
  const bool output = saves == Saves::Output;
  return differentiable(name, {x}, y,
                        [&backward, saved = save(output ? y : x, output ? kSavedOutput : 0),
                         numbers...](const Tensor& dy) -> Gradients {
                          if (grad_enabled()) {
                            const auto slope = [&backward, numbers...](const auto&... tensors) {
                              backward(tensors..., numbers...);
                            };
                            return {twice->elementwise(dy, saved.get(), slope, {numbers...})};
                          }
                          Tensor dx = empty_like(saved.get());
                          backward(dx, like(dy, saved.get()), saved.get(), numbers...);
                          return {dx};
                        });
}

// Returns x in a form that a view can share. A channel-blocked x is copied, and neither can be
// written to while both are there (Storage::twins). x itself stays as it is, because other threads
// may read it.
Tensor viewable(const Tensor& x);

// Returns elements begin, …, begin + (length - 1) step along d, without history.
Tensor part_of(const Tensor& x, int d, int64_t begin, int64_t length, int64_t step = 1);

// Returns x with its last two dimensions exchanged, without history.
Tensor swapped_matrix(const Tensor& x);

// Returns a · b (+ bias) for strided operands of 2 or 3 dimensions, without history. If `to` is
// defined, that is the result's memory: contiguous, of its shape.
Tensor matrix_product(const Tensor& a, const Tensor& b, const Tensor& bias = {},
                      const Tensor& to = {});

// Handles inputs without values. There is nothing to normalise, but a weight and a bias receive
// their gradient, which is 0. The result has the shape of the first input.
Tensor normalized_nothing(const char* operation, const std::vector<Tensor>& inputs);

}  // namespace ringgrad
