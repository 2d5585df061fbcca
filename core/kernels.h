// THE CONTRACT, all of it: every primitive that a device must provide, with its formula, shapes and
// requirements. kernels/classifier_kernels.h has the rules, and the primitives that train a
// convolutional classifier.
#pragma once

#include "ringgrad/core/kernels/augmentation.h"
#include "ringgrad/core/kernels/classifier_kernels.h"

namespace ringgrad::kernels {

// KERNEL is defined as in classifier_kernels.h.
#define KERNEL(name, arguments, ...) \
  inline constinit Kernel<void arguments __VA_OPT__(, ) __VA_ARGS__> name { #name }

// ---- elementwise arithmetic: any dtype but bool -------------------------------------------------
KERNEL(sub, (const Tensor& y, const Tensor& a, const Tensor& b));
KERNEL(mul, (const Tensor& y, const Tensor& a, const Tensor& b));
// db = -dy a / b².
KERNEL(div_backward, (const Tensor& db, const Tensor& dy, const Tensor& a, const Tensor& b));
// If one argument is NaN, the result is NaN.
KERNEL(maximum, (const Tensor& y, const Tensor& a, const Tensor& b));
// da = 0 where a < b, dy / 2 where a == b, and dy where a > b or either is NaN. db is the mirror
// image.
KERNEL(maximum_backward,
       (const Tensor& da, const Tensor& db, const Tensor& dy, const Tensor& a, const Tensor& b));
// If one argument is NaN, the result is NaN.
KERNEL(minimum, (const Tensor& y, const Tensor& a, const Tensor& b));
KERNEL(minimum_backward,
       (const Tensor& da, const Tensor& db, const Tensor& dy, const Tensor& a, const Tensor& b));
// y = x > 0 ? x : w x.
KERNEL(prelu, (const Tensor& y, const Tensor& x, const Tensor& w));
KERNEL(prelu_backward,
       (const Tensor& dx, const Tensor& dw, const Tensor& dy, const Tensor& x, const Tensor& w));

// ---- comparisons, and the choice they make: any dtype -------------------------------------------
KERNEL(less, (const Tensor& y, const Tensor& a, const Tensor& b));
KERNEL(less_equal, (const Tensor& y, const Tensor& a, const Tensor& b));
// y = c != 0 ? a : b. c has the same dtype as a and b.
KERNEL(where, (const Tensor& y, const Tensor& c, const Tensor& a, const Tensor& b));

// ---- elementwise functions: floating dtypes -----------------------------------------------------
KERNEL(exp, (const Tensor& y, const Tensor& x));
KERNEL(log, (const Tensor& y, const Tensor& x));
// y = log(1 + x).
KERNEL(log1p, (const Tensor& y, const Tensor& x));
// dx = dy / (1 + x).
KERNEL(log1p_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
KERNEL(sin, (const Tensor& y, const Tensor& x));
KERNEL(sin_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
KERNEL(cos, (const Tensor& y, const Tensor& x));
KERNEL(cos_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
KERNEL(sqrt, (const Tensor& y, const Tensor& x));
// dx = dy / (2 y).
KERNEL(sqrt_backward, (const Tensor& dx, const Tensor& dy, const Tensor& y));
KERNEL(abs, (const Tensor& y, const Tensor& x));
// dx = dy sign(x); 0 at 0, NaN at NaN.
KERNEL(abs_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
KERNEL(pow, (const Tensor& y, const Tensor& x, double exponent));
// dx = dy exponent x^(exponent - 1), and 0 if the exponent is 0.
KERNEL(pow_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x, double exponent));
// NaN stays NaN.
KERNEL(clamp, (const Tensor& y, const Tensor& x, double low, double high));
// dx = dy where low < x < high, else 0.
KERNEL(clamp_backward,
       (const Tensor& dx, const Tensor& dy, const Tensor& x, double low, double high));
// y = x > 0 ? x : slope x.
KERNEL(leaky_relu, (const Tensor& y, const Tensor& x, double slope));
KERNEL(leaky_relu_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x, double slope));
// y = x > 0 ? x : alpha (e^x - 1).
KERNEL(elu, (const Tensor& y, const Tensor& x, double alpha));
KERNEL(elu_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x, double alpha));
// y = log(1 + e^(beta x)) / beta, without overflow.
KERNEL(softplus, (const Tensor& y, const Tensor& x, double beta));
KERNEL(softplus_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x, double beta));
// y = 1 / (1 + e^-x), without overflow.
KERNEL(sigmoid, (const Tensor& y, const Tensor& x));
// dx = dy y (1 - y).
KERNEL(sigmoid_backward, (const Tensor& dx, const Tensor& dy, const Tensor& y));
KERNEL(tanh, (const Tensor& y, const Tensor& x));
// dx = dy (1 - y²).
KERNEL(tanh_backward, (const Tensor& dx, const Tensor& dy, const Tensor& y));
// y = x Φ(x), exact (Hendrycks & Gimpel 2016).
KERNEL(gelu, (const Tensor& y, const Tensor& x));
KERNEL(gelu_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
// y = x sigmoid(x).
KERNEL(silu, (const Tensor& y, const Tensor& x));
KERNEL(silu_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
// y = x tanh(log(1 + e^x)), without overflow (Misra 2019).
KERNEL(mish, (const Tensor& y, const Tensor& x));
KERNEL(mish_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
// y = x Φ(x) with Φ(x) = sigmoid(2 √(2/π) (x + 0.044715 x³)).
KERNEL(gelu_tanh, (const Tensor& y, const Tensor& x));
KERNEL(gelu_tanh_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
// y = x clamp(x + 3, 0, 6) / 6. dx = 0 for x <= -3, dy for x >= 3, and dy (x / 3 + 1/2) between.
KERNEL(hardswish, (const Tensor& y, const Tensor& x));
KERNEL(hardswish_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
// These give whole numbers. round() takes halves to the even number.
KERNEL(floor, (const Tensor& y, const Tensor& x));
KERNEL(ceil, (const Tensor& y, const Tensor& x));
KERNEL(round, (const Tensor& y, const Tensor& x));
KERNEL(trunc, (const Tensor& y, const Tensor& x));
// y = -1, 0 or 1; 0 if x is NaN.
KERNEL(sign, (const Tensor& y, const Tensor& x));
// Huber's loss (1964) / scale of d = x - t: d²/2 where |d| <= delta, else delta (|d| - delta/2). dx
// = dy d / scale, with d clamped to ±delta. The scale is 1 or delta. Nothing overflows unless the
// result does.
KERNEL(huber, (const Tensor& y, const Tensor& x, const Tensor& t, double delta, double scale));
KERNEL(huber_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& t,
                        double delta, double scale));
// Binary cross entropy of probabilities x and targets t, both in [0, 1]. Logarithms below -100
// count as -100. 1e-12F is PyTorch's float32 constant, also used for float64.
//   -t log x - (1 - t) log(1 - x);  dx = dy (x - t) / max(x (1 - x), 1e-12F)
KERNEL(bce, (const Tensor& y, const Tensor& x, const Tensor& t));
KERNEL(bce_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& t));
// Binary cross entropy of logits x and targets t in [0, 1], and its limit where x is infinite:
//   max(x, 0) - x t + log(1 + e^-|x|);  dx = dy (sigmoid(x) - t)
KERNEL(bce_with_logits, (const Tensor& y, const Tensor& x, const Tensor& t));
KERNEL(bce_with_logits_backward,
       (const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& t));

// ---- reductions ---------------------------------------------------------------------------------
// y = Σ (x - mean)² over these dimensions, in double. x is floating and has any strides. y and mean
// are float64, contiguous and of one shape. An undefined mean is 0.
KERNEL(squared_deviations, (const Tensor& y, const Tensor& x, const Tensor& mean));
// y[] = Σ x². x is floating and contiguous. y is float64 for float64 x, and float32 otherwise.
KERNEL(sum_squares, (const Tensor& y, const Tensor& x));
// record[] = min(record, base + i) over all i for which x[i] is NaN or infinite. record is int64. x
// is floating and contiguous.
KERNEL(find_not_finite, (const Tensor& record, const Tensor& x, int64_t base));
// x [O, N, I], y and index (int64) [O, I], all contiguous. y is the largest (smallest) element
// along N, and index its position, the first of equals. NaN wins. REQUIRES: N >= 1.
KERNEL(max, (const Tensor& y, const Tensor& index, const Tensor& x));
KERNEL(min, (const Tensor& y, const Tensor& index, const Tensor& x));
// x and y [O, N, I], contiguous. y[n] = x[0] + … + x[n]; with `reverse`, y[n] = x[n] + … + x[N -
// 1]. Any dtype except bool.
KERNEL(cumsum, (const Tensor& y, const Tensor& x, bool reverse));
// x [O, N, I] and index (int64) [O, K, I], contiguous. x[index[0]], x[index[1]], … are the first K
// sorted elements along N. The sort is stable, and NaN counts as larger than all numbers. K = N;
// the CPU also takes K < N.
KERNEL(argsort, (const Tensor& index, const Tensor& x, bool descending));

// ---- batch normalisation and max pooling in one pass --------------------------------------------
// Batch normalisation and max pooling in one pass. y [N, C, H / window, W / window] is the largest
// batch_norm_apply() value in each square of `window` pixels. The squares do not overlap, and the
// images have the layout that LayoutPolicy::pool2d gives. index has that pixel's position, the
// first of equals before rectifying and rounding, in max_pool2d's format. winners has x at that
// position. batch_norm_backward_reduce of dy, winners and y gives the sums for backward.
KERNEL(batch_norm_max_pool,
       (const Tensor& y, const Tensor& winners, const Tensor& index, const Tensor& x,
        const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& bias, double eps,
        bool relu, int64_t window));
// dx is batch_norm_backward_apply()'s for the g that max_pool2d_backward makes of dy where y > 0.
// Without relu y is undefined, and g is made of all of dy.
KERNEL(batch_norm_max_pool_backward,
       (const Tensor& dx, const Tensor& dy, const Tensor& index, const Tensor& x, const Tensor& y,
        const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& sum_dy,
        const Tensor& sum_dy_xhat, double eps, double count, int64_t window));

// ---- row-wise: x, y [N, C] contiguous, C >= 1 ---------------------------------------------------
// Layer normalisation (Ba et al. 2016): y = weight (x - mean) rstd + bias. mean, rstd [N]; weight,
// bias [M] or undefined. weight and bias have `groups` parts of equal size; row n uses part n mod
// groups. Each number of a part serves the same number of neighbouring columns. With M = C that is
// one column each; in group normalisation (Wu & He 2018) it is all pixels of a channel. These four,
// dweight and dbias have the accumulation dtype.
KERNEL(layer_norm, (const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                    const Tensor& weight, const Tensor& bias, int64_t groups, double eps));
KERNEL(layer_norm_backward, (const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                             const Tensor& dy, const Tensor& x, const Tensor& mean,
                             const Tensor& rstd, const Tensor& weight, int64_t groups));
// y = e^(x - m) / Σ_c e^(x - m), m = max_c x. log_softmax is its logarithm, computed as x - m -
// log(Σ_c e^(x - m)).
KERNEL(softmax, (const Tensor& y, const Tensor& x));
// dx = y (dy - Σ dy y).
KERNEL(softmax_backward, (const Tensor& dx, const Tensor& dy, const Tensor& y));
KERNEL(log_softmax, (const Tensor& y, const Tensor& x));
// dx = dy - e^y Σ dy.
KERNEL(log_softmax_backward, (const Tensor& dx, const Tensor& dy, const Tensor& y));

// Cross entropy of log-probabilities x, without smoothing: loss[n] = -u[t] x[n, t].
KERNEL(nll_loss, (const Tensor& loss, const Tensor& weight, const Tensor& x, const Tensor& t,
                  const Tensor& class_weight, int64_t ignore_index));
KERNEL(nll_loss_backward, (const Tensor& dx, const Tensor& scale, const Tensor& t,
                           const Tensor& class_weight, int64_t ignore_index));

// ---- indexing: index is int64 with values in [0, N), all contiguous, any dtype ------------------
// A value outside is never used to read or write memory; the element that it would produce keeps
// its old content. The operations refuse such values earlier.
// x [O, N, I], index [M], y [O, M, I]:  y[o, j, i] = x[o, index[j], i].
KERNEL(index_select, (const Tensor& y, const Tensor& x, const Tensor& index));
// dx[o, index[j], i] += dy[o, j, i], in the order of j.
KERNEL(index_add, (const Tensor& dx, const Tensor& dy, const Tensor& index));
// x [O, N, I], index and y [O, M, I]:  y[o, j, i] = x[o, index[o, j, i], i].
KERNEL(gather, (const Tensor& y, const Tensor& x, const Tensor& index));
// dx[o, index[o, j, i], i] += dy[o, j, i], in the order of j.
KERNEL(scatter_add, (const Tensor& dx, const Tensor& dy, const Tensor& index));

// ---- random numbers: Philox4x32-10 (Salmon et al. 2011), see core/random.h for the exact stream -
// x is int64 and contiguous. Element i is low plus a uniform number in [0, range). REQUIRES: range
// >= 1.
KERNEL(randint, (const Tensor& x, const Tensor& state, int64_t low, uint64_t range));
// y = x / (1 - p) where element i's 32 random bits are >= p 2^32, else 0. No mask is kept: the same
// call with dy gives dx.
KERNEL(dropout, (const Tensor& y, const Tensor& x, const Tensor& state, double p));

// ---- batches of images, from a data set of bytes ------------------------------------------------
// With a = draw_augmentation(options, H, W, epoch, index[b]), h' = h + a.dy and w' = (a.flip ? W -
// 1 - w : w) + a.dx:
//   y[b, c, h, w] = scale[c] images[index[b], c, h', w'] + shift[c];
//                   shift[c] where (h', w') is outside; 0 in a's cut
// images uint8 [M, C, H, W], y [B, C, H, W] floating, index int64 [B], scale and shift float32 [C];
// all are contiguous. An image b whose index is outside [0, M) is skipped. epoch is an int64 []
// tensor, so that replays of a captured step see the next epoch.
KERNEL(augment_images,
       (const Tensor& y, const Tensor& images, const Tensor& index, const Tensor& epoch,
        const Tensor& scale, const Tensor& shift, const AugmentOptions& options));

// ---- optimizers, over flat arrays [n] -----------------------------------------------------------
// lr and step are as in sgd_step. The three kernels below apply weight decay to the gradient as
// Adam does: g += weight_decay param. An array that the options make needless is undefined.
struct RmspropStepOptions {
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
};
// Hinton 2012, lecture 6e:
//   v = α v + (1 - α) g²;  with `centered` m = α m + (1 - α) g, else m = 0
//   d = g / (sqrt(v - m²) + eps);  with momentum buffer = momentum buffer + d, and d = buffer
//   param -= lr d
KERNEL(rmsprop_step, (const Tensor& param, const Tensor& v, const Tensor& m, const Tensor& buffer,
                      const Tensor& grad, const Tensor& lr, const Tensor& step,
                      const RmspropStepOptions& options));
struct AdagradStepOptions {
  double lr_decay = 0;
  double eps = 1e-10;
  double weight_decay = 0;
  double initial = 0;
};
// Duchi, Hazan & Singer 2011:
//   sum += g²;  param -= lr / (1 + step lr_decay) g / (sqrt(initial + sum) + eps)
KERNEL(adagrad_step, (const Tensor& param, const Tensor& sum, const Tensor& grad, const Tensor& lr,
                      const Tensor& step, const AdagradStepOptions& options));
struct AdadeltaStepOptions {
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
};
// Zeiler 2012:
//   v = ρ v + (1 - ρ) g²;  d = sqrt(u + eps) / sqrt(v + eps) g;  u = ρ u + (1 - ρ) d²
//   param -= lr d
KERNEL(adadelta_step, (const Tensor& param, const Tensor& v, const Tensor& u, const Tensor& grad,
                       const Tensor& lr, const Tensor& step, const AdadeltaStepOptions& options));

#undef KERNEL

}  // namespace ringgrad::kernels
