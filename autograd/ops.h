// Every public operation, by subject; networks are written in them. classifier_ops.h has those of a
// convolutional classifier; the others follow here.
//
// They are free functions. Those that are methods in PyTorch are methods here, too (core/tensor.h).
// Each operation checks its arguments and throws a typed error in its own name. It runs a kernel of
// core/kernels.h on its tensors' device, and joins the graph if an input requires a gradient
// (autograd/differentiable.h). autograd/ops/ has each operation next to its backward. The comments
// mention only what a reader of PyTorch's documentation would not expect. One file, so that all are
// on one page.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "ringgrad/autograd/classifier_ops.h"
#include "ringgrad/core/random.h"

namespace ringgrad {

// ---- elementwise arithmetic ---------------------------------------------------------------------
// Operands broadcast as in NumPy. They must have the same dtype and device; nothing is promoted.
// Integers support add, sub, mul, neg, maximum, minimum, clamp and pow, which are exact and have no
// gradients; results that do not fit wrap. The quotient of integers is float32. All of this is as
// in PyTorch. Throws ShapeError, DTypeError, DeviceError.

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
// For an integer tensor c must be whole and within its range, else DTypeError.
Tensor add(const Tensor& x, Scalar c);
Tensor sub(const Tensor& x, Scalar c);
Tensor mul(const Tensor& x, Scalar c);
// On the CPU the quotient is rounded once in float32 and float64; otherwise it is x · (1/c).
Tensor div(const Tensor& x, Scalar c);
Tensor neg(const Tensor& x);
// NaN wins. At a tie each receives half the gradient, and at NaN all of it.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);

// For integers the exponent must be whole and at least 0, else DTypeError.
Tensor pow(const Tensor& x, Scalar exponent);
inline Tensor square(const Tensor& x) { return pow(x, 2); }
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
// log(1 + x), precise near 0.
Tensor log1p(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor sqrt(const Tensor& x);
// The gradient is 0 at 0, and NaN at NaN (PyTorch: 0).
Tensor abs(const Tensor& x);
// Either limit may be left out. The gradient is 0 at the limits themselves.
Tensor clamp(const Tensor& x, std::optional<Scalar> low, std::optional<Scalar> high = {});
inline Tensor clamp_min(const Tensor& x, Scalar low) { return clamp(x, low); }
inline Tensor clamp_max(const Tensor& x, Scalar high) { return clamp(x, std::nullopt, high); }
// These give whole numbers; round() takes halves to the even number. Integers stay unchanged. The
// gradient is 0.
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);
Tensor trunc(const Tensor& x);
// The result is -1, 0 or 1; for NaN it is 0. The gradient is 0.
Tensor sign(const Tensor& x);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator+(const Tensor& x, Scalar c) { return add(x, c); }
inline Tensor operator+(Scalar c, const Tensor& x) { return add(x, c); }
inline Tensor operator-(const Tensor& x, Scalar c) { return sub(x, c); }
inline Tensor operator-(Scalar c, const Tensor& x) { return add(neg(x), c); }
inline Tensor operator*(const Tensor& x, Scalar c) { return mul(x, c); }
inline Tensor operator*(Scalar c, const Tensor& x) { return mul(x, c); }
inline Tensor operator/(const Tensor& x, Scalar c) { return div(x, c); }
Tensor operator/(Scalar c, const Tensor& x);

// ---- comparisons --------------------------------------------------------------------------------
// The result is bool, without gradient. Operands broadcast and have the same dtype, which may be
// any. NaN equals nothing. A number is converted to the tensor's dtype. Throws DTypeError if the
// dtype cannot hold it: bool holds only 0 and 1, and uint8 no negative numbers. The result is not a
// condition: see Mask in core/tensor.h.

Mask eq(const Tensor& a, const Tensor& b);
Mask ne(const Tensor& a, const Tensor& b);
Mask lt(const Tensor& a, const Tensor& b);
Mask le(const Tensor& a, const Tensor& b);
inline Mask gt(const Tensor& a, const Tensor& b) { return lt(b, a); }
inline Mask ge(const Tensor& a, const Tensor& b) { return le(b, a); }
Mask eq(const Tensor& x, Scalar c);
Mask ne(const Tensor& x, Scalar c);
Mask lt(const Tensor& x, Scalar c);
Mask le(const Tensor& x, Scalar c);
Mask gt(const Tensor& x, Scalar c);
Mask ge(const Tensor& x, Scalar c);
Tensor scalar_like(const Tensor& x, Scalar c);  // a tensor [] of x's dtype, on its device

inline Mask operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
inline Mask operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
inline Mask operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Mask operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Mask operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Mask operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
inline Mask operator==(const Tensor& x, Scalar c) { return eq(x, c); }
inline Mask operator!=(const Tensor& x, Scalar c) { return ne(x, c); }
inline Mask operator<(const Tensor& x, Scalar c) { return lt(x, c); }
inline Mask operator<=(const Tensor& x, Scalar c) { return le(x, c); }
inline Mask operator>(const Tensor& x, Scalar c) { return gt(x, c); }
inline Mask operator>=(const Tensor& x, Scalar c) { return ge(x, c); }

// These take bool tensors. Masks have them as operators, too.
Mask logical_not(const Tensor& x);
Mask logical_and(const Tensor& a, const Tensor& b);
Mask logical_or(const Tensor& a, const Tensor& b);
inline Mask operator~(const Mask& x) { return logical_not(x); }
inline Mask operator&(const Mask& a, const Mask& b) { return logical_and(a, b); }
inline Mask operator|(const Mask& a, const Mask& b) { return logical_or(a, b); }

inline Mask isnan(const Tensor& x) { return ne(x, x); }
bool equal(const Tensor& a, const Tensor& b);  // same shape and elements; waits for the device

// Return true if any, or all, of the elements are not 0, over `dims` or over everything.
Mask any(const Tensor& x, const Dims& dims = {}, Flag keepdim = false);
Mask all(const Tensor& x, const Dims& dims = {}, Flag keepdim = false);

// mask ? a : b, with broadcasting. The mask is bool. The gradient goes to the operand that gave the
// value.
Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& mask, const Tensor& a, Scalar b);
Tensor where(const Tensor& mask, Scalar a, const Tensor& b);
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);
// The selected elements as 1-D, in row-major order. Waits for the device.
Tensor masked_select(const Tensor& x, const Tensor& mask);
// int64 [n, mask.dim()]: the positions where the mask is true, in row-major order. Waits for the
// device.
Tensor nonzero(const Tensor& mask);

// ---- nonlinearities -----------------------------------------------------------------------------
// These are elementwise, for any shape and floating dtypes. Layout and strides are kept if zero
// maps to zero.

// x > 0 ? x : slope x. At 0 the gradient is slope.
Tensor leaky_relu(const Tensor& x, Real slope = 0.01);
// x > 0 ? x : weight x. weight is broadcast.
Tensor prelu(const Tensor& x, const Tensor& weight);
// x > 0 ? x : alpha (e^x - 1). At NaN the gradient is NaN.
Tensor elu(const Tensor& x, Real alpha = 1);
// log(1 + e^(beta x)) / beta. PyTorch returns x beyond 20 / beta.
Tensor softplus(const Tensor& x, Real beta = 1);
inline Tensor logsigmoid(const Tensor& x) { return neg(softplus(neg(x))); }
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
// x Φ(x), exact, like PyTorch's default.
Tensor gelu(const Tensor& x);
// x sigmoid(x).
Tensor silu(const Tensor& x);

// x Φ(x) with PyTorch's approximation of Φ by a tanh.
Tensor gelu_tanh(const Tensor& x);
// x tanh(log(1 + e^x)).
Tensor mish(const Tensor& x);
// x clamp(x + 3, 0, 6) / 6.
Tensor hardswish(const Tensor& x);
// clamp(x + 3, 0, 6) / 6.
Tensor hardsigmoid(const Tensor& x);
inline Tensor relu6(const Tensor& x) { return clamp(x, 0, 6); }
inline Tensor hardtanh(const Tensor& x, Scalar low = -1, Scalar high = 1) {
  return clamp(x, low, high);
}
// The self-normalising elu of Klambauer et al. 2017.
Tensor selu(const Tensor& x);
// alpha elu(x / alpha).
Tensor celu(const Tensor& x, Real alpha = 1);
// x / (1 + |x|).
Tensor softsign(const Tensor& x);
inline Tensor tanhshrink(const Tensor& x) { return sub(x, tanh(x)); }
// x beyond ±lambda, else 0; NaN stays. softshrink also moves x towards 0 by lambda.
Tensor hardshrink(const Tensor& x, Real lambda = 0.5);
inline Tensor softshrink(const Tensor& x, Real lambda = 0.5) {
  return sub(x, clamp(x, -lambda, double{lambda}));
}
// x <= limit ? value : x, so that NaN stays.
inline Tensor threshold(const Tensor& x, Scalar limit, Scalar value) {
  return where(le(x, limit), value, x);
}
// The first half along dim, times the sigmoid of the second half.
Tensor glu(const Tensor& x, Int dim = -1);

// e^x / Σ e^x along a dimension (0 for a scalar), safe from overflow. log_softmax is its logarithm.
// Throws IndexError for a missing dimension, and DTypeError for integers.
Tensor softmax(const Tensor& x, Int dim = -1);
Tensor log_softmax(const Tensor& x, Int dim = -1);
inline Tensor softmin(const Tensor& x, Int dim = -1) { return softmax(neg(x), dim); }
// A random choice along dim with the probabilities softmax(x), softened by the temperature tau
// (Jang et al. 2017). With `hard` the result is zeros and a single 1, with the gradient of the soft
// choice.
Tensor gumbel_softmax(const Tensor& x, Real tau = 1, Flag hard = false, Int dim = -1);

// ---- reductions ---------------------------------------------------------------------------------
// `dims` is one dimension or several; empty means all of them. With keepdim the reduced dimensions
// stay with size 1. An empty mean is NaN. An empty maximum and a missing dimension throw
// IndexError. A sum of integers or bools is int64. A scalar has dimension 0.

Tensor sum(const Tensor& x, const Dims& dims = {}, Flag keepdim = false);
Tensor mean(const Tensor& x, const Dims& dims = {}, Flag keepdim = false);
// The variance with divisor n - correction, and its root. Correction 1 is Bessel's and PyTorch's
// default; `unbiased` selects it. (After `using namespace ringgrad` a bare std is ambiguous: write
// x.std(), or ringgrad::std(x).)
Tensor var(const Tensor& x, const Dims& dims = {}, Int correction = 1, Flag keepdim = false);
inline Tensor var(const Tensor& x, const Dims& dims, Flag unbiased, Flag keepdim = false) {
  return var(x, dims, unbiased ? 1 : 0, keepdim);
}
inline Tensor var(const Tensor& x, Flag unbiased) { return var(x, {}, unbiased); }
Tensor std(const Tensor& x, const Dims& dims = {}, Int correction = 1, Flag keepdim = false);
inline Tensor std(const Tensor& x, const Dims& dims, Flag unbiased, Flag keepdim = false) {
  return std(x, dims, unbiased ? 1 : 0, keepdim);
}
inline Tensor std(const Tensor& x, Flag unbiased) { return std(x, {}, unbiased); }
// (Σ |x|^p)^(1/p), p > 0; for p = ∞ the largest |x|. The gradient at 0 is 0, as in PyTorch.
Tensor norm(const Tensor& x, Real p = 2, const Dims& dims = {}, Flag keepdim = false);
Tensor logsumexp(const Tensor& x, Int dim, Flag keepdim = false);  // log Σ e^x without overflow
// For integers the result is int64, and for no elements 1. The gradient is exact even if elements
// are 0.
Tensor prod(const Tensor& x);
Tensor prod(const Tensor& x, Int dim, Flag keepdim = false);

// The extreme value over everything (shape []), or along one dimension. The gradient goes to the
// first of equal elements.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
struct ValuesAndIndices {
  // indices are int64, without gradient
  Tensor values;
  Tensor indices;
};
ValuesAndIndices max(const Tensor& x, Int dim, Flag keepdim = false);
ValuesAndIndices min(const Tensor& x, Int dim, Flag keepdim = false);
Tensor argmax(const Tensor& x, Int dim, Flag keepdim = false);
Tensor argmin(const Tensor& x, Int dim, Flag keepdim = false);
Tensor argmax(const Tensor& x);  // the index in row-major order, shape []
Tensor argmin(const Tensor& x);

// ---- along one dimension ------------------------------------------------------------------------
Tensor cumsum(const Tensor& x, Int dim);   // y[n] = x[0] + … + x[n]
Tensor cumprod(const Tensor& x, Int dim);  // y[n] = x[0] · … · x[n], like prod()
// The sort is stable, and NaN is the largest. On CUDA a topk costs as much as a sort.
Tensor argsort(const Tensor& x, Int dim = -1, Flag descending = false);
ValuesAndIndices sort(const Tensor& x, Int dim = -1, Flag descending = false);
ValuesAndIndices topk(const Tensor& x, Int64 k, Int dim = -1, Flag largest = true);

// ---- matrix products ----------------------------------------------------------------------------
// [..., M, K] · [..., K, N] → [..., M, N]. The leading dimensions are broadcast; a single matrix is
// used for every batch. A vector [K] is a row for a, or a column for b, and the result lacks that
// dimension. Any strides are accepted, so a transposed view is not copied. Throws ShapeError that
// names the inner sizes that differ.
Tensor matmul(const Tensor& a, const Tensor& b);
inline Tensor mm(const Tensor& a, const Tensor& b) { return matmul(a, b); }
inline Tensor bmm(const Tensor& a, const Tensor& b) { return matmul(a, b); }
// Einstein's summation of two operands: einsum("bij,bjk->bik", a, b). Indices are letters, each at
// most once in an operand. Letters that the result does not name are summed. Without "->" the
// result has the letters that appear once, in alphabetical order. Throws ShapeError if a letter has
// two sizes.
Tensor einsum(const char* equation, const Tensor& a, const Tensor& b);

// ---- other convolutions, and pooling ------------------------------------------------------------
// These are the functions with options, but with libtorch's arguments in its order. In ceil_mode,
// windows that begin inside the input or the leading padding may extend beyond the trailing
// padding; positions there do not count. The dilation is 1.
inline Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b, Pair stride,
                     Pair padding = 0, Pair dilation = 1, Int64 groups = 1) {
  return conv2d(x, w, b,
                {.stride = stride, .padding = padding, .dilation = dilation, .groups = groups});
}
Tensor max_pool2d(const Tensor& x, Pair kernel, Pair stride = 0, Pair padding = 0,
                  Pair dilation = 1, Flag ceil_mode = false);
Tensor avg_pool2d(const Tensor& x, Pair kernel, Pair stride = 0, Pair padding = 0,
                  Flag ceil_mode = false, Flag count_include_pad = true);

// conv2d() along one dimension: x [N, C, L], w [K, C/groups, R] → [N, K, P]. x may lack the batch
// dimension; for the transposed convolution it is then [C, P, Q].
struct Conv1dOptions {
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;
};
Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& b = {},
              const Conv1dOptions& options = {});

// The gradient of conv2d with respect to its input, as an operation (Zeiler et al. 2010): x [N, K,
// P, Q], w [K, C/groups, R, S], b [C] → [N, C, H, W] with H = (P - 1) stride - 2 pad + dil (R - 1)
// + output_padding + 1.
struct ConvTranspose2dOptions {
  OnlyByName only_by_name = OnlyByName();
  Pair stride = 1;
  Pair padding = 0;
  // Less than stride or dilation. It selects one of the sizes that conv2d maps to x's size.
  Pair output_padding = 0;
  Pair dilation = 1;
  int64_t groups = 1;
};
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& b = {},
                        const ConvTranspose2dOptions& options = {});

// ---- arrangements of images, and interpolation --------------------------------------------------
// [..., C r², H, W] → [..., C, H r, W r] (Shi et al. 2016), and the reverse.
Tensor pixel_shuffle(const Tensor& x, Int64 r);
Tensor pixel_unshuffle(const Tensor& x, Int64 r);
// The factors of a convolution with these options: x [N, C, H, W] → [N, C R S, P Q], the windows as
// columns.
struct UnfoldOptions {
  OnlyByName only_by_name = OnlyByName();
  Pair kernel = 1;
  Pair stride = 1;
  Pair padding = 0;
  Pair dilation = 1;
};
Tensor unfold(const Tensor& x, const UnfoldOptions& options);

// [N, C, H, W] → [N, C, P, Q]. Nearest takes pixel ⌊p H / P⌋. Bilinear interpolates between the
// four pixels around (p + 1/2) H / P - 1/2, and beyond the edge takes the edge's. With
// align_corners they are those around p (H - 1) / (P - 1).
enum class UpsampleMode : uint8_t { Nearest, Bilinear };
struct UpsampleOptions {
  UpsampleMode mode = UpsampleMode::Nearest;
  bool align_corners = false;  // for bilinear
};
Tensor upsample(const Tensor& x, Pair output_size, const UpsampleOptions& options = {});

// ---- normalisation of samples -------------------------------------------------------------------
// Normalises over the last dimensions, whose sizes are `normalized_shape` (Ba et al. 2016). weight
// and bias have that shape, in x's dtype or in float32 beside 16 bits, or are undefined.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, Real eps = 1e-5);

// Normalises over the channels of each of `groups` groups and all later dimensions (Wu & He 2018).
// x is [N, C, …], C a multiple of groups; weight, bias [C] or undefined.
Tensor group_norm(const Tensor& x, Int64 groups, const Tensor& weight = {}, const Tensor& bias = {},
                  Real eps = 1e-5);

// Normalises each channel of each sample over all later dimensions (Ulyanov et al. 2016). x is [N,
// C, …]; weight, bias [C] or undefined. Throws ShapeError if a channel has one number, whose
// variance is undefined.
Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                     Real eps = 1e-5);
// x / max(‖x‖, eps), where the norm is along dim.
Tensor normalize(const Tensor& x, Real p = 2, Int dim = 1, Real eps = 1e-12);
// Σ a b / (max(‖a‖, eps) max(‖b‖, eps)) along dim.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, Int dim = 1, Real eps = 1e-8);
// ‖a - b + eps‖ along the last dimension.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, Real p = 2, Real eps = 1e-6,
                         Flag keepdim = false);

// ---- attention ----------------------------------------------------------------------------------
// softmax(q kᵀ scale + mask) v: q [..., L, E], k [..., S, E], v [..., S, F] → [..., L, F]. mask is
// bool [..., L, S], true for keys that a query may use, or numbers to add. With is_causal a query
// uses keys up to its own position. A query without a key gets zeros. The scale is 1 / √E unless
// given. The L × S matrix of the weights is never made, also not in backward, unless the
// mask requires a gradient or a graph of the gradients is asked for. dropout_p is the probability
// that a weight is dropped. Throws as matmul(), and if there is a mask besides is_causal.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& mask = {}, Real dropout_p = 0,
                                    Flag is_causal = false, std::optional<double> scale = {});

// ---- dropout ------------------------------------------------------------------------------------
// Zeroes each element with probability p and scales the others by 1 / (1 - p) (Srivastava et al.
// 2014). Returns x if not training. Throws Error unless 0 <= p <= 1. Draws from the device's
// default generator. No mask is kept: backward draws the same numbers again.
Tensor dropout(const Tensor& x, Real p = 0.5, Flag training = true);
// Drops whole channels (Tompson et al. 2015).
Tensor dropout2d(const Tensor& x, Real p = 0.5, Flag training = true);
// Drops whole samples (Huang et al. 2016, "stochastic depth").
Tensor drop_path(const Tensor& x, Real p = 0.5, Flag training = true);
// Preserves mean 0 and variance 1, for selu() (Klambauer et al. 2017).
Tensor alpha_dropout(const Tensor& x, Real p = 0.5, Flag training = true);

// ---- losses -------------------------------------------------------------------------------------
// Reduction::Mean divides by the number of elements, and for cross_entropy and nll_loss by the sum
// of the targets' class weights. None gives one value per element, or per row.

// cross_entropy() for x that holds log-probabilities.
Tensor nll_loss(const Tensor& x, const Tensor& target, const ClassLossOptions& options = {});

// Returns the divisor of the mean of cross_entropy and nll_loss: the number of rows that are not
// ignored, or the sum of their class weights. Waits for the device.
double loss_divisor(const Tensor& target, const ClassLossOptions& options = {});

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::Mean);
// target is in [0, 1] and has x's shape.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        Reduction reduction = Reduction::Mean);
// The same for x that holds probabilities. Logarithms below -100 count as -100. On the CPU, throws
// Error if x or target has elements outside [0, 1].
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target,
                            Reduction reduction = Reduction::Mean);

// The same with a weight for each element and with pos_weight p, which multiplies the positive
// term: -w (p t log σ(x) + (1 - t) log(1 - σ(x))). Either may be undefined. They are broadcast to
// x's shape.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                            Reduction reduction = Reduction::Mean);
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight,
                                        const Tensor& pos_weight = {},
                                        Reduction reduction = Reduction::Mean);

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::Mean);
// With d = |x - target|: d²/2 up to delta, then delta (d - delta/2) (Huber 1964). smooth_l1 is that
// divided by beta.
Tensor huber_loss(const Tensor& x, const Tensor& target, Real delta = 1,
                  Reduction reduction = Reduction::Mean);
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Real beta = 1,
                      Reduction reduction = Reduction::Mean);
// target (log target - x), where x holds log-probabilities; with log_target the target holds
// logarithms, too. The mean is over all elements. PyTorch's "batchmean" is the sum divided by
// x.size(0).
Tensor kl_div(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::Mean,
              Flag log_target = false);

// In the following losses labels and targets are broadcast to the first argument's shape. That one
// is not: they throw ShapeError for [N] and [N, 1].

// max(0, -y (a - b) + margin). y is 1 if a should be the larger, else -1.
Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& y, Real margin = 0,
                           Reduction reduction = Reduction::Mean);
// x where y is 1, max(0, margin - x) where it is -1.
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& y, Real margin = 1,
                            Reduction reduction = Reduction::Mean);
// log(1 + e^(-y x)).
Tensor soft_margin_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::Mean);
// 1 - cos where y is 1, max(0, cos - margin) where it is -1: a, b [N, D] and y [N], or [D] and [].
Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& y, Real margin = 0,
                             Reduction reduction = Reduction::Mean);
// max(0, ‖anchor - positive + eps‖ - ‖anchor - negative + eps‖ + margin), with norms as in
// pairwise_distance(). With `swap`, the positive replaces the anchor in the second norm if it is
// nearer to the negative. All three are broadcast.
struct TripletMarginOptions {
  double margin = 1;
  double p = 2;
  double eps = 1e-6;
  bool swap = false;
  Reduction reduction = Reduction::Mean;
};
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options = {});
// e^x - t x; with log_input = false it is x - t log(x + 1e-8).
Tensor poisson_nll_loss(const Tensor& x, const Tensor& target, Flag log_input = true,
                        Reduction reduction = Reduction::Mean);
// (log v + (x - t)² / v) / 2 with v = max(var, eps). Below eps, too, the gradient of v goes to var.
// var is broadcast to x's shape; if it lacks one dimension, that is the last: a number for each
// row. On the CPU, throws Error if it has elements below 0.
Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& var, Real eps = 1e-6,
                         Reduction reduction = Reduction::Mean);

// ---- other shapes of the same elements ----------------------------------------------------------
// The rules at the same heading in classifier_ops.h hold for all of these.

Tensor transpose(const Tensor& x, Int dim0, Int dim1);
// y.size(i) = x.size(order[i]).
Tensor permute(const Tensor& x, const Dims& order);
// Never copies: throws Error if reshape() would copy.
Tensor view(const Tensor& x, const Shape& shape);
// Elements begin, begin + step, … below end. Negative bounds count from the end, and bounds are
// clamped as in Python.
Tensor slice(const Tensor& x, Int dim, Int64 begin, Int64 end = INT64_MAX, Int64 step = 1);
// Elements begin … begin + length - 1.
Tensor narrow(const Tensor& x, Int dim, Int64 begin, Int64 length);
// The slice at `place`, without dimension dim.
Tensor select(const Tensor& x, Int dim, Int64 place);
// Returns slices of this size; the last may be shorter.
std::vector<Tensor> split(const Tensor& x, Int64 size, Int dim = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, Int dim = 0);
// Returns at most `chunks` slices of size ⌈n / chunks⌉.
std::vector<Tensor> chunk(const Tensor& x, Int64 chunks, Int dim = 0);
// Repeats dimensions of size 1 without a copy; -1 keeps a size.
Tensor expand(const Tensor& x, const Shape& shape);
// Copies x side by side, `times` along each dimension. More times than dimensions add new ones.
Tensor repeat(const Tensor& x, const Shape& times);
// Removes a dimension of size 1.
Tensor squeeze(const Tensor& x, Int dim);
// Removes all dimensions of size 1.
Tensor squeeze(const Tensor& x);
// Inserts a dimension of size 1.
Tensor unsqueeze(const Tensor& x, Int dim);
Tensor cat(const std::vector<Tensor>& tensors, Int dim = 0);
Tensor stack(const std::vector<Tensor>& tensors, Int dim = 0);
// Reverses the elements along these dimensions.
Tensor flip(const Tensor& x, const Dims& dims);
// y[(i + shift) mod n] = x[i] along each of the dimensions. Without dimensions x is treated as one
// row.
Tensor roll(const Tensor& x, const std::vector<int64_t>& shifts, const Dims& dims = {});
// The values beyond the border: a mirror image that does not repeat the border (Reflect), the
// border (Replicate), or the opposite end (Circular). Widths are those of pad(). Negative widths
// remove elements, in pad(), too.
enum class PadMode : uint8_t { Constant, Reflect, Replicate, Circular };
Tensor pad(const Tensor& x, const std::vector<int64_t>& widths, PadMode mode, Scalar value = 0);
// The vectors as axes of one grid. Result i has the shape of all sizes and the values of vector i
// along dimension i ("ij"); for "xy" the first two dimensions are exchanged.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, const char* indexing = "ij");
// Zeroes the elements above (tril) or below (triu) a diagonal of the last two dimensions. It is
// `diagonal` places above the main one.
Tensor tril(const Tensor& x, Int64 diagonal = 0);
Tensor triu(const Tensor& x, Int64 diagonal = 0);

// ---- picking elements by index ------------------------------------------------------------------
// Indices are int64; a value outside its range throws IndexError (for tensors on the CPU).

// index [M]: returns the slices index[0], index[1], … of x.
Tensor index_select(const Tensor& x, Int dim, const Tensor& index);
// y[i][j] = x[index[i][j]][j] for dim 0.
Tensor gather(const Tensor& x, Int dim, const Tensor& index);
// x with values added (scatter_add) or stored (scatter): y[index[i][j]][j] += values[i][j] for dim
// 0. index and values have the same shape, which is x's except for dim. If scatter stores several
// values in one place, the result is their sum.
Tensor scatter_add(const Tensor& x, Int dim, const Tensor& index, const Tensor& values);
Tensor scatter(const Tensor& x, Int dim, const Tensor& index, const Tensor& values);
// y[index[i]] += values[i].
Tensor index_add(const Tensor& x, Int dim, const Tensor& index, const Tensor& values);
// weight [n, …] at index [...] → [..., …]. Row padding_idx receives no gradient.
Tensor embedding(const Tensor& index, const Tensor& weight,
                 std::optional<int64_t> padding_idx = {});
// index [...] → [..., num_classes].
Tensor one_hot(const Tensor& index, Int64 num_classes, DType dtype = DType::Float32);

// x.index({0, Slice(1, 3), None, Ellipsis, places}). Each entry treats the next dimensions: a
// number selects and removes one, a slice restricts one, None inserts one of size 1, and Ellipsis
// skips as many as remain. A tensor is int64, whose negative elements count from the end, or a bool
// mask of the dimensions that it selects from (waits for the device). Several tensors are broadcast
// and select elements together: x.index({rows, columns})[i] is x[rows[i]][columns[i]]. Their
// dimensions replace the tensors' if those were neighbours, and otherwise come first, as in
// PyTorch.
inline constexpr std::nullopt_t None = std::nullopt;
inline constexpr struct EllipsisIndex {
} Ellipsis;
struct Slice {
  int64_t begin;
  int64_t end;
  int64_t step;
  Slice(std::optional<Int64> begin = None, std::optional<Int64> end = None, Int64 step = 1)
      : begin(begin.value_or(0)), end(end.value_or(INT64_MAX)), step(step) {}
};
struct Index {
  enum class Kind : uint8_t { Place, Range, NewDimension, Rest, Rows } kind;
  Slice range;
  Tensor rows;
  template <class A>
  requires kIsOfKind<A, int64_t> Index(A place) : kind(Kind::Place), range(place) {}
  Index(Slice range) : kind(Kind::Range), range(range) {}
  Index(std::nullopt_t) : kind(Kind::NewDimension) {}
  Index(EllipsisIndex) : kind(Kind::Rest) {}
  Index(Tensor rows) : kind(Kind::Rows), rows(std::move(rows)) {}
};
Tensor index(const Tensor& x, const std::vector<Index>& at);
// x with `values`, which have x's dtype and are broadcast, stored at these places. If several
// values go to one place, the last one stays. With `accumulate` all of them are added.
Tensor index_put(const Tensor& x, const std::vector<Index>& at, const Tensor& values,
                 Flag accumulate = false);

// ---- random numbers, from the default generator of the device -----------------------------------
// The numbers below n in random order. Throws DTypeError if the dtype does not hold all of them.
Tensor randperm(Int64 n, TensorOptions options = {.dtype = DType::Int64});
// Draws `count` positions in each row of weights [N, C] or [C], with probabilities proportional to
// the weights: int64 [N, count] or [count]. Without replacement no position comes twice. On the
// CPU, throws Error if a weight is negative or too few are above 0.
Tensor multinomial(const Tensor& weights, Int64 count, Flag replacement = false);

// ---- the same values on another device, or in other memory --------------------------------------
// Returns x if it is there. The gradient is copied back.
Tensor to(const Tensor& x, Device device);
// Always copies, and keeps the layout.
Tensor clone(const Tensor& x);

}  // namespace ringgrad
