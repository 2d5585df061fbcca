// THE CONTRACT: every primitive that a device must provide, with its formula, shapes and
// requirements. Those that train a convolutional classifier are in kernels/classifier_kernels.h.
//
// Rules that hold for all of them
//   * Outputs come first and are allocated by the caller. All tensors are on one device (copies
//     excepted).
//   * Shapes in brackets. "Row-wise" kernels see [N, C] contiguous; the caller has brought the
//     dimension to the end.
//   * Elementwise kernels: every tensor has the same shape (the caller expands: stride 0) and dtype
//     unless said otherwise, any strides; or all are channel-blocked. An output may be the very
//     same array as an input.
//   * 16-bit floating types are computed and accumulated in float32 (except in pooling's backward:
//     where windows overlap, a pixel's gradients are added one by one in the 16-bit type, rounded
//     after each); float32 sums use float32 partial sums of at most a few thousand terms, combined
//     in a fixed order that does not depend on the number of threads. (Products of matrices and
//     convolutions combine theirs in float32 again, and on some devices add all terms of an output
//     one by one, as index_add and scatter_add do.)
//   * kVendorToo: a vendor's library may do it as well. No output is among the inputs or read, so
//     that both may be run to see which is faster; an argument for which that does not hold says
//     what takes its place then: when_timed(). (Not max pooling: libraries remember where the
//     maximum was in ways of their own.)
//   * Zero elements are fine everywhere. Callers (autograd/ops) have validated shapes and dtypes:
//     kernels ASSERT, and throw DTypeError where they have nothing for a dtype.
//   * Gradients are written dy, dx, dw, db; dx means d(loss)/dx. Optional tensors may be undefined.
#pragma once

#include "ringgrad/core/kernels/classifier_kernels.h"

namespace ringgrad::kernels {

// As in classifier_kernels.h.
#define KERNEL(name, arguments, ...) \
  inline constinit Kernel<void arguments __VA_OPT__(, ) __VA_ARGS__> name { #name }

// ---- elementwise arithmetic: any dtype but bool -------------------------------------------------
KERNEL(sub, (const Tensor& y, const Tensor& a, const Tensor& b));
KERNEL(mul, (const Tensor& y, const Tensor& a, const Tensor& b));
// -dy a / b².
KERNEL(div_backward, (const Tensor& db, const Tensor& dy, const Tensor& a, const Tensor& b));
// NaN wins.
KERNEL(maximum, (const Tensor& y, const Tensor& a, const Tensor& b));
// da = 0 where a < b, dy/2 where equal, else (a > b, or one of them is NaN) dy; db the other way
// round.
KERNEL(maximum_backward,
       (const Tensor& da, const Tensor& db, const Tensor& dy, const Tensor& a, const Tensor& b));
// NaN wins, here too.
KERNEL(minimum, (const Tensor& y, const Tensor& a, const Tensor& b));
KERNEL(minimum_backward,
       (const Tensor& da, const Tensor& db, const Tensor& dy, const Tensor& a, const Tensor& b));
// x > 0 ? x : w x.
KERNEL(prelu, (const Tensor& y, const Tensor& x, const Tensor& w));
KERNEL(prelu_backward,
       (const Tensor& dx, const Tensor& dw, const Tensor& dy, const Tensor& x, const Tensor& w));

// ---- comparisons, and the choice they make: any dtype -------------------------------------------
KERNEL(less, (const Tensor& y, const Tensor& a, const Tensor& b));
KERNEL(less_equal, (const Tensor& y, const Tensor& a, const Tensor& b));
// c != 0 ? a : b, c of their dtype.
KERNEL(where, (const Tensor& y, const Tensor& c, const Tensor& a, const Tensor& b));

// ---- elementwise functions: floating dtypes -----------------------------------------------------
KERNEL(exp, (const Tensor& y, const Tensor& x));
KERNEL(log, (const Tensor& y, const Tensor& x));
// log(1 + x).
KERNEL(log1p, (const Tensor& y, const Tensor& x));
// dy / (1 + x).
KERNEL(log1p_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
KERNEL(sin, (const Tensor& y, const Tensor& x));
KERNEL(sin_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
KERNEL(cos, (const Tensor& y, const Tensor& x));
KERNEL(cos_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
KERNEL(sqrt, (const Tensor& y, const Tensor& x));
// dy / (2 y).
KERNEL(sqrt_backward, (const Tensor& dx, const Tensor& dy, const Tensor& y));
KERNEL(abs, (const Tensor& y, const Tensor& x));
// dy sign(x); 0 at 0, NaN at NaN.
KERNEL(abs_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
KERNEL(pow, (const Tensor& y, const Tensor& x, double exponent));
// dy exponent x^(exponent - 1); 0 where exponent is 0.
KERNEL(pow_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x, double exponent));
// NaN stays NaN.
KERNEL(clamp, (const Tensor& y, const Tensor& x, double low, double high));
// dy where low < x < high, else 0.
KERNEL(clamp_backward,
       (const Tensor& dx, const Tensor& dy, const Tensor& x, double low, double high));
// x > 0 ? x : slope x.
KERNEL(leaky_relu, (const Tensor& y, const Tensor& x, double slope));
KERNEL(leaky_relu_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x, double slope));
// x > 0 ? x : alpha (e^x - 1).
KERNEL(elu, (const Tensor& y, const Tensor& x, double alpha));
KERNEL(elu_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x, double alpha));
// log(1 + e^(beta x)) / beta, without overflow.
KERNEL(softplus, (const Tensor& y, const Tensor& x, double beta));
KERNEL(softplus_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x, double beta));
// 1 / (1 + e^-x), without overflow.
KERNEL(sigmoid, (const Tensor& y, const Tensor& x));
// dy y (1 - y).
KERNEL(sigmoid_backward, (const Tensor& dx, const Tensor& dy, const Tensor& y));
KERNEL(tanh, (const Tensor& y, const Tensor& x));
// dy (1 - y²).
KERNEL(tanh_backward, (const Tensor& dx, const Tensor& dy, const Tensor& y));
// x Φ(x), exact (Hendrycks & Gimpel 2016).
KERNEL(gelu, (const Tensor& y, const Tensor& x));
KERNEL(gelu_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
// x sigmoid(x).
KERNEL(silu, (const Tensor& y, const Tensor& x));
KERNEL(silu_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
// x tanh(log(1 + e^x)), without overflow (Misra 2019).
KERNEL(mish, (const Tensor& y, const Tensor& x));
KERNEL(mish_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
// x Φ(x) with Φ(x) = sigmoid(2 √(2/π) (x + 0.044715 x³)).
KERNEL(gelu_tanh, (const Tensor& y, const Tensor& x));
KERNEL(gelu_tanh_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
// x clamp(x + 3, 0, 6) / 6; dx = 0 up to -3, dy from 3 on, else dy (x / 3 + 1/2).
KERNEL(hardswish, (const Tensor& y, const Tensor& x));
KERNEL(hardswish_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x));
// Whole numbers; round: of halves the even one.
KERNEL(floor, (const Tensor& y, const Tensor& x));
KERNEL(ceil, (const Tensor& y, const Tensor& x));
KERNEL(round, (const Tensor& y, const Tensor& x));
KERNEL(trunc, (const Tensor& y, const Tensor& x));
// -1, 0 or 1; 0 of NaN.
KERNEL(sign, (const Tensor& y, const Tensor& x));
// Huber's loss (1964) / scale: x²/2 where |x| <= delta, else delta (|x| - delta/2).
// dx = dy x / scale, x not beyond ±delta. The scale is 1 or delta, and nothing overflows but the
// result.
KERNEL(huber, (const Tensor& y, const Tensor& x, double delta, double scale));
KERNEL(huber_backward,
       (const Tensor& dx, const Tensor& dy, const Tensor& x, double delta, double scale));
// Binary cross entropy of probabilities x and targets t, both in [0, 1], logarithms below -100
// being -100. 1e-12F is PyTorch's float32 number, for float64, too:
//   -t log x - (1 - t) log(1 - x);  dx = dy (x - t) / max(x (1 - x), 1e-12F)
KERNEL(bce, (const Tensor& y, const Tensor& x, const Tensor& t));
KERNEL(bce_backward, (const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& t));
// Binary cross entropy of logits x and targets t in [0, 1], and its limit where x is infinite:
//   max(x, 0) - x t + log(1 + e^-|x|);  dx = dy (sigmoid(x) - t)
KERNEL(bce_with_logits, (const Tensor& y, const Tensor& x, const Tensor& t));
KERNEL(bce_with_logits_backward,
       (const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& t));

// ---- reductions ---------------------------------------------------------------------------------
// y = Σ (x - mean)² over these dimensions, in double. x floating, any strides; y and mean float64,
// of one shape and contiguous; an undefined mean is 0.
KERNEL(squared_deviations, (const Tensor& y, const Tensor& x, const Tensor& mean));
// y[] = sum of x², x floating and contiguous; y float32 (float64 for float64 x).
KERNEL(sum_squares, (const Tensor& y, const Tensor& x));
// record[] = min(record, base + i) over the i for which x[i] is NaN or infinite. record int64, x
// floating, contiguous.
KERNEL(find_not_finite, (const Tensor& record, const Tensor& x, int64_t base));
// x [O, N, I], y and index (int64) [O, I], all contiguous: the largest (smallest) over N and where
// it is, the first of equals; a NaN wins. REQUIRES: N >= 1.
KERNEL(max, (const Tensor& y, const Tensor& index, const Tensor& x));
KERNEL(min, (const Tensor& y, const Tensor& index, const Tensor& x));
// x and y [O, N, I] contiguous: y[n] = x[0] + … + x[n], with `reverse` x[n] + … + x[N - 1]. Any
// dtype but bool.
KERNEL(cumsum, (const Tensor& y, const Tensor& x, bool reverse));
// x [O, N, I] and index (int64) [O, K, I] contiguous: x[index[0]], x[index[1]], … along N are the
// first K of its sorted elements, equals in the order in which they were; a NaN counts as larger
// than all others. K = N; on the CPU K <= N.
KERNEL(argsort, (const Tensor& index, const Tensor& x, bool descending));

// ---- batch normalisation and max pooling in one pass --------------------------------------------
// y [N, C, H / window, W / window] = the largest of batch_norm_apply's in each square of `window`
// pixels side by side, in one pass over images as LayoutPolicy::pool2d says. index: where that is,
// the first of equals, before they are rectified and rounded, as max_pool2d's;  winners: x there.
// Backward's sums are batch_norm_backward_reduce of dy, winners and y.
KERNEL(batch_norm_max_pool,
       (const Tensor& y, const Tensor& winners, const Tensor& index, const Tensor& x,
        const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& bias, double eps,
        bool relu, int64_t window));
// dx as batch_norm_backward_apply's, for the g that max_pool2d_backward makes of dy where y > 0
// (without relu, where y is undefined: of all of dy).
KERNEL(batch_norm_max_pool_backward,
       (const Tensor& dx, const Tensor& dy, const Tensor& index, const Tensor& x, const Tensor& y,
        const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& sum_dy,
        const Tensor& sum_dy_xhat, double eps, double count, int64_t window));

// ---- row-wise: x, y [N, C] contiguous, C >= 1 ---------------------------------------------------
// Layer normalisation (Ba et al. 2016): y = weight (x - mean) rstd + bias; mean, rstd [N]; weight,
// bias [M] or undefined. weight and bias have `groups` parts of equal size, and row n uses part n
// mod groups. Each number of a part serves the same number of neighbouring columns: with M = C one
// column each, or all pixels of a channel (Wu & He 2018). All four, dweight and dbias are in the
// accumulation type.
KERNEL(layer_norm, (const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                    const Tensor& weight, const Tensor& bias, int64_t groups, double eps));
KERNEL(layer_norm_backward, (const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                             const Tensor& dy, const Tensor& x, const Tensor& mean,
                             const Tensor& rstd, const Tensor& weight, int64_t groups));
// y = e^(x - m) / sum_c e^(x - m), m = max_c x.
// log_softmax is its logarithm, computed as x - m - log(sum).
KERNEL(softmax, (const Tensor& y, const Tensor& x));
// y (dy - Σ dy y).
KERNEL(softmax_backward, (const Tensor& dx, const Tensor& dy, const Tensor& y));
KERNEL(log_softmax, (const Tensor& y, const Tensor& x));
// dy - e^y Σ dy.
KERNEL(log_softmax_backward, (const Tensor& dx, const Tensor& dy, const Tensor& y));

// cross_entropy for x that already holds log-probabilities, without smoothing: loss[n] = -u[t] x[n,
// t].
KERNEL(nll_loss, (const Tensor& loss, const Tensor& weight, const Tensor& x, const Tensor& t,
                  const Tensor& class_weight, int64_t ignore_index));
KERNEL(nll_loss_backward, (const Tensor& dx, const Tensor& scale, const Tensor& t,
                           const Tensor& class_weight, int64_t ignore_index));

// ---- indexing: index is int64 with values in [0, N), all contiguous, any dtype ------------------
// Values outside are never read or written: what they would give stays as it was (the operations
// refuse them earlier).
// x [O, N, I], index [M], y [O, M, I]:  y[o, j, i] = x[o, index[j], i].
KERNEL(index_select, (const Tensor& y, const Tensor& x, const Tensor& index));
// dx[o, index[j], i] += dy[o, j, i], in the order of j.
KERNEL(index_add, (const Tensor& dx, const Tensor& dy, const Tensor& index));
// x [O, N, I], index and y [O, M, I]:  y[o, j, i] = x[o, index[o, j, i], i].
KERNEL(gather, (const Tensor& y, const Tensor& x, const Tensor& index));
// dx[o, index[o, j, i], i] += dy[o, j, i], in the order of j.
KERNEL(scatter_add, (const Tensor& dx, const Tensor& dy, const Tensor& index));

// ---- random numbers: Philox4x32-10 (Salmon et al. 2011), see core/random.h for the exact stream -
// x int64, contiguous: element i is low + a number in [0, range), each with the same probability.
// REQUIRES: range >= 1.
KERNEL(randint, (const Tensor& x, const Tensor& state, int64_t low, uint64_t range));
// y = x / (1 - p) where element i's 32 random bits are >= p 2^32, else 0. The same call with dy
// gives dx: no mask is kept.
KERNEL(dropout, (const Tensor& y, const Tensor& x, const Tensor& state, double p));

// ---- optimizers, over flat arrays [n] -----------------------------------------------------------
// lr and step are as sgd_step's. The three below take their weight decay from the gradient, g +=
// weight_decay param, as Adam does, and an undefined array where an option makes it needless.
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
