// The operations of a convolutional image classifier, and its loss. ops.h has all operations and
// states the rules that hold for each of them.
#pragma once

#include <vector>

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

// y = max(x, 0). The gradient is 0 at 0, and at NaN (PyTorch: 1).
Tensor relu(const Tensor& x);

// y = x wᵀ + b: x [..., in], w [out, in], b [out] or undefined, y [..., out]. Weights and biases
// have x's dtype, or float32 if x has 16 bits.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b = {});

// ---- convolutions of images ---------------------------------------------------------------------
// These are cross-correlations of images [N, C, H, W], as in every framework. Weights and biases
// have the images' dtype, or float32 beside 16-bit images. The result has the layout in which its
// device convolves fastest.
//
// Winograd's algorithms carry a NaN or an infinity to outputs that do not use the pixel, and
// overflow sooner. set_conv_algorithm(ConvAlgorithm::Direct) chooses exact sums instead.
// core/README.md says which convolutions use Winograd's algorithms. Every algorithm may multiply
// the zeros around an image. So an infinite or NaN weight can make outputs and gradients at the
// border NaN. An infinite or NaN pixel (in a transposed convolution: of dy) can make the weight's
// gradient NaN. Sums near the largest number may overflow on the way.

// x [N, C, H, W], or without N; w [K, C/groups, R, S], b [K] or undefined → [N, K, P, Q],
// P = ⌊(H + 2 pad - dil (R - 1) - 1)/stride⌋ + 1.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b = {},
              const Conv2dOptions& options = {});

// ---- pooling of images: [N, C, H, W] → [N, C, P, Q] ---------------------------------------------
// The gradient goes to the first of equal maxima.
Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options);
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options);
// Averages windows that cover the input evenly: window i of P is rows ⌊i H / P⌋ … ⌈(i + 1) H / P⌉ -
// 1.
Tensor adaptive_avg_pool2d(const Tensor& x, Pair output_size);

// ---- normalisation ------------------------------------------------------------------------------
enum class Activation : uint8_t { None, Relu };

struct BatchNormOptions {
  bool training = true;
  // The weight of the new value in the running statistics.
  double momentum = 0.1;
  double eps = 1e-5;
  Activation activation = Activation::None;
  // It is added before the activation and has x's shape.
  Tensor residual = {};
  // The side of the windows of a max_pool2d after the activation; 0 means no pooling.
  int64_t max_pool = 0;
  // A counter, int64 []: each batch in training adds one.
  Tensor batches = {};
};

// y = act(weight (x - mean) / sqrt(var + eps) + bias + residual), per channel (Ioffe & Szegedy
// 2015). Normalisation, addition and activation are one node, as are activation and max pooling, so
// that they read and write each byte once.
//   x [N, C, ...]; weight, bias, running_mean, running_var [C] or undefined, the last two float32
//   (float64 for float64 x). In training mean and var (biased) are those of the batch. The running
//   ones become (1 - momentum) running + momentum batch (unbiased); evaluation uses them. If
//   float32 does not hold a batch's variance, the CPU normalises in float64; on CUDA xhat is 0 or
//   NaN. Throws in training with one value per channel, because its variance is 0/0.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var,
                  const BatchNormOptions& options = {});

// Checks what batch_norm() requires of its arguments, except the number of values per channel.
// Throws in the name of `operation`.
void check_batch_norm(const char* operation, const Tensor& x, const Tensor& weight,
                      const Tensor& bias, const Tensor& running_mean, const Tensor& running_var,
                      const BatchNormOptions& options);
// Returns the fusion in the form of Node::fused: "+ residual + relu".
const char* fused_into(const BatchNormOptions& options);

// ---- losses -------------------------------------------------------------------------------------
// Reduction::Mean divides by the number of elements, and for cross_entropy and nll_loss by the sum
// of the targets' class weights. None gives one value per element, or per row.

enum class Reduction : uint8_t { Mean, Sum, None };

struct ClassLossOptions {
  Tensor weight = {};           // [C], a weight per class
  int64_t ignore_index = -100;  // rows with this target do not count
  double label_smoothing = 0;   // cross_entropy only, in [0, 1]: Szegedy et al. 2016, section 7
  Reduction reduction = Reduction::Mean;
};

// Computes log_softmax and nll_loss in one node. x is [N, C] logits and target int64 [N] with
// values in [0, C) or ignore_index; or x is [N, C, H, W] and target [N, H, W]. Throws IndexError
// that names the row of a target outside (for tensors on the CPU). The loss of 16-bit logits is
// float32. If every row is ignored, the mean is NaN (0/0). A floating target of x's shape holds
// probabilities of the classes; a mean then divides by the number of rows.
Tensor cross_entropy(const Tensor& x, const Tensor& target, const ClassLossOptions& options = {});

// ---- other shapes of the same elements ----------------------------------------------------------
// reshape, flatten, transpose, permute, slice, expand, squeeze and unsqueeze return views if
// strides can express the result; otherwise reshape copies. cat, stack and pad copy. If a view of a
// channel-blocked tensor has a history, it is a strided copy. Otherwise the tensor itself becomes
// strided, so that writing to the view writes to the tensor. Sizes that do not fit throw
// ShapeError, and a missing dimension throws IndexError.

// One size may be -1; it is derived from the others.
Tensor reshape(const Tensor& x, const Shape& shape);
// Joins dimensions start … end into one.
Tensor flatten(const Tensor& x, Int start_dim = 0, Int end_dim = -1);
// widths are before/after pairs, the last dimension first: pad(x, {1, 1, 2, 2}) adds 1 on each side
// of W and 2 on each side of H.
Tensor pad(const Tensor& x, const std::vector<int64_t>& widths, Scalar value = 0);

// ---- the same values in another dtype, or in another order in memory ----------------------------
// These return x if nothing changes. The gradient is converted back. Conversion to an integer dtype
// truncates and has no gradient.
Tensor to(const Tensor& x, DType dtype);
// Returns a row-major tensor without gaps.
Tensor contiguous(const Tensor& x);
// A change from another layout to Strided gives a contiguous tensor; see Layout.
Tensor to_layout(const Tensor& x, Layout layout);

}  // namespace ringgrad
