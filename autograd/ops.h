// Every public operation, by subject: what a network is written in.
//
// They are free functions. Each checks its arguments and throws a typed error in its own name, runs a kernel of
// core/kernels.h on the device where its tensors live, and joins the graph where an input requires a gradient
// (autograd/differentiable.h). An operation and its backward stand together in autograd/ops/. A comment says what a
// reader of PyTorch's documentation would not expect.
#pragma once

#include <utility>
#include <vector>

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/random.h"

namespace ringgrad {

// ---- elementwise arithmetic ---------------------------------------------------------------------------------------
// With NumPy's broadcasting. Both tensors have one dtype and one device. Integer dtypes work for add, sub, mul, div,
// neg, maximum and equal (division truncates; by zero gives 0) and have no gradient; the functions need a floating
// dtype. Errors: ShapeError where shapes cannot be broadcast, DTypeError, DeviceError.

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& x, double c);  // with an integer tensor c is whole, else DTypeError
Tensor mul(const Tensor& x, double c);
Tensor div(const Tensor& x, double c);  // floating; on the CPU rounded once in float32 and float64; else x · (1/c)
Tensor neg(const Tensor& x);
Tensor maximum(const Tensor& a, const Tensor& b);  // NaN wins; at a tie each receives half the gradient, at NaN all
Tensor equal(const Tensor& a, const Tensor& b);    // bool, without gradient

Tensor pow(const Tensor& x, double exponent);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor abs(const Tensor& x);                             // gradient 0 at 0
Tensor clamp(const Tensor& x, double low, double high);  // gradient 1 at the limits themselves

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator+(const Tensor& x, double c) { return add(x, c); }
inline Tensor operator+(double c, const Tensor& x) { return add(x, c); }
inline Tensor operator-(const Tensor& x, double c) { return add(x, -c); }
inline Tensor operator-(double c, const Tensor& x) { return add(neg(x), c); }
inline Tensor operator*(const Tensor& x, double c) { return mul(x, c); }
inline Tensor operator*(double c, const Tensor& x) { return mul(x, c); }
inline Tensor operator/(const Tensor& x, double c) { return div(x, c); }
inline Tensor operator/(double c, const Tensor& x) { return mul(pow(x, -1), c); }

// ---- nonlinearities -----------------------------------------------------------------------------------------------
// Elementwise. Any shape; floating dtypes; layouts and strides are kept where zero maps to zero.

Tensor relu(const Tensor& x);                             // max(x, 0); gradient 0 at 0, and at NaN (PyTorch: 1)
Tensor leaky_relu(const Tensor& x, double slope = 0.01);  // x > 0 ? x : slope x; gradient slope at 0
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor gelu(const Tensor& x);  // x Φ(x), exact (by erf), as PyTorch's default
Tensor silu(const Tensor& x);  // x sigmoid(x)

// e^x / sum e^x along a dimension (0 of a scalar), safe from overflow; log_softmax is its logarithm.
// IndexError for a dimension that is not there, DTypeError for integers.
Tensor softmax(const Tensor& x, int dim = -1);
Tensor log_softmax(const Tensor& x, int dim = -1);

// ---- reductions ---------------------------------------------------------------------------------------------------
// `dims` may be negative; empty means all of them. With keepdim the reduced dimensions stay with size 1.
// An empty mean is NaN, an empty maximum an IndexError, as is a dimension that is not there. A sum of integers or bools
// is int64. A scalar has dimension 0.

Tensor sum(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
// The variance with divisor n - correction (1: Bessel's, as PyTorch's default).
Tensor var(const Tensor& x, const std::vector<int>& dims = {}, int correction = 1, bool keepdim = false);

// The extreme value over everything (shape []), or along one dimension. The gradient goes to the first of equals.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
struct ValuesAndIndices {
  Tensor values, indices;  // indices int64, without gradient
};
ValuesAndIndices max(const Tensor& x, int dim, bool keepdim = false);
ValuesAndIndices min(const Tensor& x, int dim, bool keepdim = false);
Tensor argmax(const Tensor& x, int dim, bool keepdim = false);

// ---- matrix products ----------------------------------------------------------------------------------------------
// [M, K] · [K, N] → [M, N];  [B, M, K] · [B, K, N] → [B, M, N]; a 2-D operand of a 3-D one is used for every batch.
// Any strides: a transposed view is not copied. Throws ShapeError naming the inner sizes that differ.
Tensor matmul(const Tensor& a, const Tensor& b);

// y = x wᵀ + b:  x [..., in], w [out, in], b [out] or undefined, y [..., out]. Weights and biases have x's dtype, or
// stay float32 where that has 16 bits.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b = {});

// ---- convolutions of images ---------------------------------------------------------------------------------------
// Cross-correlations, as in every framework, of images [N, C, H, W]. Weights and biases have the images'
// dtype, or stay float32 where that has 16 bits. The result is in the layout in which its device convolves fastest.
//
// Winograd's algorithms carry a NaN or an infinity to all outputs of its tile, which are more than those that see the
// pixel; where that matters, choose ConvAlgorithm::Direct (core/kernels/geometry.h).

// x [N, C, H, W], w [K, C/groups, R, S], b [K] or undefined → [N, K, P, Q],
// P = ⌊(H + 2 pad - dil (R - 1) - 1)/stride⌋ + 1.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b = {}, const Conv2dOptions& options = {});
inline Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b, Pair stride, Pair padding = 0,
                     Pair dilation = 1, int64_t groups = 1) {
  return conv2d(x, w, b, {.stride = stride, .padding = padding, .dilation = dilation, .groups = groups});
}

// The gradient of conv2d with respect to its input, as an operation: x [N, K, P, Q], w [K, C/groups, R, S], b [C],
// → [N, C, H, W], H = (P - 1) stride - 2 pad + dil (R - 1) + output_padding + 1 (Zeiler et al. 2010).
struct ConvTranspose2dOptions {
  [[no_unique_address]] OnlyByName only_by_name = OnlyByName();
  Pair stride = 1;
  Pair padding = 0;
  Pair output_padding = 0;  // less than stride or dilation: which of the sizes that conv2d maps to x's is meant
  Pair dilation = 1;
  int64_t groups = 1;
};
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& b = {},
                        const ConvTranspose2dOptions& options = {});

// ---- pooling of images: [N, C, H, W] → [N, C, P, Q] ---------------------------------------------------------------
Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options);  // the gradient goes to the first of equals
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options);
inline Tensor max_pool2d(const Tensor& x, Pair kernel, Pair stride = 0, Pair padding = 0) {
  return max_pool2d(x, {.kernel = kernel, .stride = stride, .padding = padding});
}
inline Tensor avg_pool2d(const Tensor& x, Pair kernel, Pair stride = 0, Pair padding = 0) {
  return avg_pool2d(x, {.kernel = kernel, .stride = stride, .padding = padding});
}
// Windows that cover the input evenly: i of P is rows ⌊i H / P⌋ … ⌈(i + 1) H / P⌉ - 1.
Tensor adaptive_avg_pool2d(const Tensor& x, Pair output_size);

// ---- normalisation ------------------------------------------------------------------------------------------------
enum class Activation : uint8_t { None, Relu };

struct BatchNormOptions {
  bool training = true;
  double momentum = 0.1;  // of the new value in the running statistics
  double eps = 1e-5;
  Activation activation = Activation::None;
  Tensor residual = {};  // added before the activation; same shape as x
};

// y = act(weight (x - mean) / sqrt(var + eps) + bias + residual), per channel (Ioffe & Szegedy 2015). One node for
// normalisation, addition and activation: they read and write each byte once.
//   x [N, C, ...]; weight, bias [C] or undefined; running_mean, running_var [C] or undefined, float32 (float64 for
//   float64 x). In training mean and var are the batch's (var biased), and the running ones are updated in place, with
//   the unbiased variance: running = (1 - momentum) running + momentum batch. Throws in training with one value per
//   channel, whose variance would be 0/0. In evaluation the running ones are used.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormOptions& options = {});

// What batch_norm() requires of its arguments, but for the number of values per channel; `operation` is who says it.
void check_batch_norm(const char* operation, const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const Tensor& running_mean, const Tensor& running_var, const BatchNormOptions& options);
// running = (1 - momentum) running + momentum · scale · batch, in place; nothing where running is undefined.
void update_running(const char* operation, const Tensor& running, const Tensor& batch, double momentum, double scale);

// Over the last dimensions, which have `normalized_shape` (Ba et al. 2016); weight, bias of that shape, in the dtype of
// x or in float32 beside 16 bits, or undefined.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

// ---- dropout ------------------------------------------------------------------------------------------------------
// Zeroes each element with probability p and scales the others by 1 / (1 - p) (Srivastava et al. 2014); x itself when
// not training. Error unless 0 <= p <= 1. Draws from the device's default generator; no mask is kept: backward draws
// the same numbers again.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

// ---- losses -------------------------------------------------------------------------------------------------------
// Reduction::Mean: divided by the number of elements (by the sum of the targets' class weights for the two that have
// them). None: one value per element, or per row.

enum class Reduction : uint8_t { Mean, Sum, None };

struct ClassLossOptions {
  Tensor weight = {};           // [C], a weight per class
  int64_t ignore_index = -100;  // rows with this target count nothing
  double label_smoothing = 0;   // cross_entropy only, in [0, 1]: Szegedy et al. 2016, section 7
  Reduction reduction = Reduction::Mean;
};

// log_softmax and nll_loss in one node: x [N, C] logits, target int64 [N] with values in [0, C) or ignore_index; or
// x [N, C, H, W] and target [N, H, W]. Throws IndexError naming the row of a target outside (for tensors on the CPU).
// The loss of 16-bit logits is float32. Where every row is ignored, the mean is NaN (0/0).
Tensor cross_entropy(const Tensor& x, const Tensor& target, const ClassLossOptions& options = {});
// The same for x that holds log-probabilities.
Tensor nll_loss(const Tensor& x, const Tensor& target, const ClassLossOptions& options = {});

// What the mean of either divides by: the number of rows that are not ignored, or the sum of their class weights. Waits
// for the device.
double loss_divisor(const Tensor& target, const ClassLossOptions& options = {});

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::Mean);
// target in [0, 1], the same shape as x.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::Mean);

// ---- other shapes of the same elements ----------------------------------------------------------------------------
// reshape, flatten, transpose, permute, slice, expand, squeeze and unsqueeze return
// views where strides can express the result (reshape copies otherwise); cat, stack and pad copy. Sizes that do not fit
// are a ShapeError, a dimension that is not there is an IndexError.

Tensor reshape(const Tensor& x, const Shape& shape);                   // one size may be -1: what is left
Tensor flatten(const Tensor& x, int start_dim = 0, int end_dim = -1);  // dimensions start … end become one
Tensor transpose(const Tensor& x, int dim0, int dim1);
Tensor permute(const Tensor& x, const std::vector<int>& order);  // y.size(i) = x.size(order[i])
// Elements begin, begin + step, … below end along dim; negative bounds count from the end and are clamped (Python).
Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end = INT64_MAX, int64_t step = 1);
Tensor expand(const Tensor& x, const Shape& shape);  // repeats dimensions of size 1; -1 keeps a size
Tensor squeeze(const Tensor& x, int dim);            // removes a dimension of size 1
Tensor unsqueeze(const Tensor& x, int dim);          // inserts one
Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);
// before/after pairs, last dimension first, as PyTorch: pad(x, {1, 1, 2, 2}) widens W by 1 and H by 2 on each side.
Tensor pad(const Tensor& x, const std::vector<int64_t>& widths, double value = 0);

// ---- picking elements by index ------------------------------------------------------------------------------------
// Indices are int64; a value outside its range throws IndexError (for tensors on the CPU).

Tensor index_select(const Tensor& x, int dim, const Tensor& index);  // index [M]: slices index[0], index[1], … of x
Tensor gather(const Tensor& x, int dim, const Tensor& index);        // y[i][j] = x[index[i][j]][j] for dim 0
Tensor one_hot(const Tensor& index, int64_t num_classes, DType dtype = DType::Float32);  // [..., num_classes]

// ---- the same values in another dtype, on another device, or in another order in memory ---------------------------
// x itself where nothing changes. The gradient is converted back. To an integer dtype: truncated, without gradient.
Tensor to(const Tensor& x, DType dtype);
Tensor to(const Tensor& x, Device device);
Tensor contiguous(const Tensor& x);                // row-major, without gaps
Tensor to_layout(const Tensor& x, Layout layout);  // to Strided from another layout: contiguous; see Layout

}  // namespace ringgrad
