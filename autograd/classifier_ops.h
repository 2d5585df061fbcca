// The operations of which a convolutional classifier of images is made, and its loss. ops.h has all
// operations, and says what holds for each of them.
#pragma once

#include <vector>

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

// max(x, 0); gradient 0 at 0, and at NaN (PyTorch: 1).
Tensor relu(const Tensor& x);

// y = x wᵀ + b:  x [..., in], w [out, in], b [out] or undefined, y [..., out]. Weights and biases
// have x's dtype, or stay float32 where that has 16 bits.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b = {});

// ---- convolutions of images ---------------------------------------------------------------------
// Cross-correlations, as in every framework, of images [N, C, H, W]. Weights and biases have the
// images' dtype, or stay float32 beside 16-bit images. The result is in the layout in which its
// device convolves fastest.
//
// Winograd's algorithms carry a NaN or an infinity to outputs that do not see the pixel, and
// overflow sooner. Where that matters, set_conv_algorithm(ConvAlgorithm::Direct) chooses exact
// sums. core/README.md says which convolutions take Winograd's algorithms.
// Every algorithm may multiply the zeros around an image: a weight that is infinite or NaN can make
// outputs and gradients at the border NaN, and a pixel (of a transposed convolution: one of dy) the
// gradient of the weight. Sums near the largest number may overflow on the way.

// x [N, C, H, W], or without N; w [K, C/groups, R, S], b [K] or undefined → [N, K, P, Q],
// P = ⌊(H + 2 pad - dil (R - 1) - 1)/stride⌋ + 1.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b = {},
              const Conv2dOptions& options = {});

// ---- pooling of images: [N, C, H, W] → [N, C, P, Q] ---------------------------------------------
// The gradient goes to the first of equals.
Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options);
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options);
// Windows that cover the input evenly: i of P is rows ⌊i H / P⌋ … ⌈(i + 1) H / P⌉ - 1.
Tensor adaptive_avg_pool2d(const Tensor& x, Pair output_size);

// ---- normalisation ------------------------------------------------------------------------------
enum class Activation : uint8_t { None, Relu };

struct BatchNormOptions {
  bool training = true;
  // The part of the new value in the running statistics.
  double momentum = 0.1;
  double eps = 1e-5;
  Activation activation = Activation::None;
  // Added before the activation; same shape as x.
  Tensor residual = {};
  // The side of max_pool2d's windows, which follows the activation; 0: it does not.
  int64_t max_pool = 0;
  // int64 []: in training, one more with each batch.
  Tensor batches = {};
};

// y = act(weight (x - mean) / sqrt(var + eps) + bias + residual), per channel (Ioffe & Szegedy
// 2015). One node for normalisation, addition and activation, or activation and max pooling: they
// read and write each byte once.
//   x [N, C, ...]; weight, bias, running_mean, running_var [C] or undefined, the last two float32
//   (float64 for float64 x). In training mean and var (biased) are the batch's, and the running
//   ones, which evaluation uses, become (1 - momentum) running + momentum batch (unbiased). Where
//   float32 does not hold a batch's variance, the CPU normalises in float64; on CUDA xhat is 0 or
//   NaN. Throws in training with one value per channel: its variance is 0/0.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var,
                  const BatchNormOptions& options = {});

// What batch_norm() requires of its arguments, but for the number of values per channel;
// `operation` is who says it.
void check_batch_norm(const char* operation, const Tensor& x, const Tensor& weight,
                      const Tensor& bias, const Tensor& running_mean, const Tensor& running_var,
                      const BatchNormOptions& options);
// The fusion, as Node::fused has it: "+ residual + relu".
const char* fused_into(const BatchNormOptions& options);

// ---- losses -------------------------------------------------------------------------------------
// Reduction::Mean: divided by the number of elements (by the sum of the targets' class weights for
// the two that have them). None: one value per element, or per row.

enum class Reduction : uint8_t { Mean, Sum, None };

struct ClassLossOptions {
  Tensor weight = {};           // [C], a weight per class
  int64_t ignore_index = -100;  // rows with this target count nothing
  double label_smoothing = 0;   // cross_entropy only, in [0, 1]: Szegedy et al. 2016, section 7
  Reduction reduction = Reduction::Mean;
};

// log_softmax and nll_loss in one node: x [N, C] logits, target int64 [N] with values in [0, C) or
// ignore_index; or x [N, C, H, W] and target [N, H, W]. Throws IndexError naming the row of a
// target outside (for tensors on the CPU). The loss of 16-bit logits is float32. Where every row is
// ignored, the mean is NaN (0/0). A floating target of x's shape has probabilities of the classes;
// then a mean divides by the number of rows.
Tensor cross_entropy(const Tensor& x, const Tensor& target, const ClassLossOptions& options = {});

// ---- other shapes of the same elements ----------------------------------------------------------
// reshape, flatten, transpose, permute, slice, expand, squeeze and unsqueeze return
// views where strides can express the result (reshape copies otherwise); cat, stack and pad copy. A
// channel-blocked tensor is seen as a strided copy where the view has a history, else it becomes
// strided itself, so that what is written to the view is written to it. Sizes that do not fit are a
// ShapeError, a dimension that is not there is an IndexError.

// One size may be -1: what is left.
Tensor reshape(const Tensor& x, const Shape& shape);
// Never copies: Error where reshape() would.
Tensor view(const Tensor& x, const Shape& shape);
// Dimensions start … end become one.
Tensor flatten(const Tensor& x, Int start_dim = 0, Int end_dim = -1);
// y.size(i) = x.size(order[i]).
Tensor permute(const Tensor& x, const Dims& order);
// before/after pairs, last dimension first: pad(x, {1, 1, 2, 2}) widens W by 1, H by 2 a side.
Tensor pad(const Tensor& x, const std::vector<int64_t>& widths, Scalar value = 0);

// ---- the same values in another dtype, on another device, or in another order in memory ---------
// x itself where nothing changes. The gradient is converted back. To an integer dtype: truncated,
// without gradient.
Tensor to(const Tensor& x, DType dtype);
Tensor to(const Tensor& x, Device device);
// Row-major, without gaps.
Tensor contiguous(const Tensor& x);
// Always a copy, in the same layout.
Tensor clone(const Tensor& x);
// Strided from another layout becomes contiguous; see Layout.
Tensor to_layout(const Tensor& x, Layout layout);

}  // namespace ringgrad
