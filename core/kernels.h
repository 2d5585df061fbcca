// THE CONTRACT: every primitive that a device must provide, with its formula, shapes and
// requirements.
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

#include "ringgrad/core/kernels/augmentation.h"
#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad::kernels {

// KERNEL(name, (arguments) [, kVendorToo]) defines a kernel's table. Constinit: it is there before
// any file registers an implementation, in whatever order those do.
#define KERNEL(name, arguments, ...) \
  inline constinit Kernel<void arguments __VA_OPT__(, ) __VA_ARGS__> name { #name }

// ---- memory -------------------------------------------------------------------------------------
// x = value, converted to x's dtype. Any dtype.
KERNEL(fill, (const Tensor& x, Scalar value));
// y = x, converted to y's dtype. Same shape; any dtypes, strides and layouts; x may be on another
// device.
KERNEL(copy, (const Tensor& y, const Tensor& x));
// The same from a device to the host, where the device does the work: called with the source first.
// Waits for it.
KERNEL(copy_to_host, (const Tensor& x, const Tensor& host_y));

// ---- elementwise arithmetic: any dtype but bool -------------------------------------------------
// A number is converted to the type in which the elements are computed; integers wrap.
// scale x + shift.
KERNEL(affine, (const Tensor& y, const Tensor& x, Scalar scale, Scalar shift));
// alpha x + beta y.
KERNEL(axpby, (const Tensor& y, const Tensor& x, Scalar alpha, Scalar beta));
KERNEL(add, (const Tensor& y, const Tensor& a, const Tensor& b));
KERNEL(sub, (const Tensor& y, const Tensor& a, const Tensor& b));
KERNEL(mul, (const Tensor& y, const Tensor& a, const Tensor& b));
KERNEL(div, (const Tensor& y, const Tensor& a, const Tensor& b));
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
// y bool: a == b.
KERNEL(equal, (const Tensor& y, const Tensor& a, const Tensor& b));
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
// max(x, 0); NaN stays NaN.
KERNEL(relu, (const Tensor& y, const Tensor& x));
// dy where y > 0.
KERNEL(relu_backward, (const Tensor& dx, const Tensor& dy, const Tensor& y));
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
// y = scale * sum of x over the dimensions in which y has size 1 and x has not. Same number of
// dimensions; x any strides; y contiguous. Any dtype but bool; an empty sum is 0. y may be wider
// than a floating x: float32, or float64, in which the terms are added then.
KERNEL(sum, (const Tensor& y, const Tensor& x, double scale));
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

// ---- matrix product -----------------------------------------------------------------------------
// c[b] = a[b] · b[b] + bias:  a [B, M, K], b [B, K, N], c [B, M, N] contiguous, bias [N] or
// undefined. a and b may have any strides (transposed, expanded). Floating dtypes. K = 0 gives the
// bias (or zeros).
KERNEL(matmul, (const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias), kVendorToo);

// ---- convolution (cross-correlation, as in every framework) -------------------------------------
// y[n,k,p,q] = b[k] + sum_{c,r,s} x[n, c, p·stride + r·dilation - padding, …] · w[k,c,r,s]
//   x [N, C, H, W], y [N, K, P, Q] of the same floating dtype, both contiguous or both in the
//   layout that the device's plan gives (LayoutPolicy); x may be contiguous there, too, where C is
//   less than a block. w [K, C/groups, R, S], b [K] or undefined: contiguous, in the same dtype, or
//   float32 where that has 16 bits; w may lie as the policy's conv2d_filters() gives it. C and K
//   are multiples of groups.
KERNEL(conv2d,
       (const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
        const Conv2dOptions& options),
       kVendorToo);
// dx = the transposed convolution of dy, plus addend: undefined, or in memory as dx is. dx lies as
// dy does. dw from dy and x. (db is the sum of dy over N, H, W.)
KERNEL(conv2d_backward_input,
       (const Tensor& dx, const Tensor& dy, const Tensor& w, const Tensor& addend,
        const Conv2dOptions& options),
       kVendorToo);
KERNEL(conv2d_backward_weight,
       (const Tensor& dw, const Tensor& dy, const Tensor& x, const Conv2dOptions& options),
       kVendorToo);

// ---- pooling ------------------------------------------------------------------------------------
// x [N, C, H, W], y [N, C, P, Q], index: contiguous, or all as LayoutPolicy::pool2d says. The
// stride is never 0: the operation has put the kernel's size in its place. index (int32, shape of
// y): h·W + w of the maximum inside its plane; the first of equals in row order.
KERNEL(max_pool2d,
       (const Tensor& y, const Tensor& index, const Tensor& x, const Pool2dOptions& options));
KERNEL(max_pool2d_backward,
       (const Tensor& dx, const Tensor& dy, const Tensor& index, const Pool2dOptions& options));
KERNEL(avg_pool2d, (const Tensor& y, const Tensor& x, const Pool2dOptions& options), kVendorToo);
KERNEL(avg_pool2d_backward, (const Tensor& dx, const Tensor& dy, const Pool2dOptions& options),
       kVendorToo);
// Window i of P covers rows ⌊i H / P⌋ … ⌈(i + 1) H / P⌉ - 1, and columns likewise.
KERNEL(adaptive_avg_pool2d, (const Tensor& y, const Tensor& x));
KERNEL(adaptive_avg_pool2d_backward, (const Tensor& dx, const Tensor& dy));

// ---- batch normalisation (Ioffe & Szegedy 2015), in four steps so that ranks can sum between them
// x [N, C, H, W] (or any [N, C, …]), y, residual and their gradients: contiguous, or all as
// LayoutPolicy::batch_norm says; everything per channel is [C], float32 (float64 for float64 x).
//   xhat = (x - mean) / sqrt(var + eps)
//   y    = act(weight xhat + bias + residual), act = relu (NaN stays NaN) or identity
// var is biased.
KERNEL(batch_norm_stats, (const Tensor& mean, const Tensor& var, const Tensor& x));
// positive: made by LayoutPolicy::batch_norm_positive(), or undefined. With relu, whether each y >
// 0 (before it is rounded): what backward takes in y's place, and a 16th or a 32nd of its bytes.
KERNEL(batch_norm_apply, (const Tensor& y, const Tensor& positive, const Tensor& x,
                          const Tensor& mean, const Tensor& var, const Tensor& weight,
                          const Tensor& bias, const Tensor& residual, double eps, bool relu));
// With g = dy where y > 0 (without relu, where y is undefined: all of dy):
//   sum_dy = sum g,  sum_dy_xhat = sum g xhat
KERNEL(batch_norm_backward_reduce,
       (const Tensor& sum_dy, const Tensor& sum_dy_xhat, const Tensor& dy, const Tensor& x,
        const Tensor& y, const Tensor& mean, const Tensor& var, double eps));
// The gradients, with the same g:
//   dx = weight / sqrt(var + eps) · (g - sum_dy / count - xhat sum_dy_xhat / count)
//   dresidual = g where defined
// With count = infinity: the gradient where mean and var are constants (evaluation mode), which is
// made of g alone, whatever the sums and x are (0 inf is not 0).
KERNEL(batch_norm_backward_apply,
       (const Tensor& dx, const Tensor& dresidual, const Tensor& dy, const Tensor& x,
        const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& weight,
        const Tensor& sum_dy, const Tensor& sum_dy_xhat, double eps, double count));
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
// Averages over the batches so far, which a call updates: mean = (1 - momentum) mean + momentum ·
// the batch's, var likewise with the batch's unbiased variance, [C] like those, and batches, int64
// [], counts one more. Each may be undefined. To see which provider is faster a call is run several
// times, then without this.
struct RunningStatistics {
  Tensor mean, var, batches;
  double momentum = 0;
  RunningStatistics when_timed() const { return {}; }
};
inline CallSignature& operator<<(CallSignature& signature, const RunningStatistics&) {
  return signature;
}
// The same for one rank alone, where nothing is summed in between: stats and apply in one call,
// then reduce and apply with count = the number of elements of a channel. dx may be undefined (then
// dresidual is): only the sums are wanted.
KERNEL(batch_norm,
       (const Tensor& y, const Tensor& positive, const Tensor& mean, const Tensor& var,
        const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
        double eps, bool relu, const RunningStatistics& running),
       kVendorToo);
KERNEL(batch_norm_backward,
       (const Tensor& sum_dy, const Tensor& sum_dy_xhat, const Tensor& dx, const Tensor& dresidual,
        const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& mean, const Tensor& var,
        const Tensor& weight, double eps),
       kVendorToo);

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

// Cross entropy of logits x [N, C] with targets t [N] (int64), class weights u [C] or undefined,
// smoothing s:
//   loss[n] = -(1 - s) u[t] logp[t] - s/C Σ_c u[c] logp[c],  logp = log_softmax(x[n])
//   weight[n] = u[t]
// and both 0 where t == ignore_index; another t outside [0, C) gives NaN. loss, weight [N] and
// log_sum_exp [N, 2] have x's accumulation type. The latter are max x and log Σ e^(x - max): their
// sum would lose what a large max leaves over.
struct CrossEntropyOptions {
  double label_smoothing = 0;
  int64_t ignore_index = -100;
};
KERNEL(cross_entropy,
       (const Tensor& loss, const Tensor& weight, const Tensor& log_sum_exp, const Tensor& x,
        const Tensor& t, const Tensor& class_weight, const CrossEntropyOptions& options));
// dx = scale[n] · d(loss[n])/dx;  scale [N] in the accumulation type.
KERNEL(cross_entropy_backward,
       (const Tensor& dx, const Tensor& scale, const Tensor& x, const Tensor& log_sum_exp,
        const Tensor& t, const Tensor& class_weight, const CrossEntropyOptions& options));
// The same for x that already holds log-probabilities, without smoothing: loss[n] = -u[t] x[n, t].
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
// state (int64 [2]: seed, offset) is read on the device. snapshot = state, then state.offset +=
// count.
KERNEL(advance_random_state, (const Tensor& snapshot, const Tensor& state, int64_t count));
KERNEL(uniform, (const Tensor& x, const Tensor& state, double low, double high));
// x int64, contiguous: element i is low + a number in [0, range), each with the same probability.
// REQUIRES: range >= 1.
KERNEL(randint, (const Tensor& x, const Tensor& state, int64_t low, uint64_t range));
KERNEL(normal, (const Tensor& x, const Tensor& state, double mean, double std));
// y = x / (1 - p) where element i's 32 random bits are >= p 2^32, else 0. The same call with dy
// gives dx: no mask is kept.
KERNEL(dropout, (const Tensor& y, const Tensor& x, const Tensor& state, double p));

// ---- batches of images, from a data set of bytes ------------------------------------------------
// With a = draw_augmentation(options, H, W, epoch, index[b]),
// h' = h + a.dy and w' = (a.flip ? W - 1 - w : w) + a.dx:
//   y[b, c, h, w] = scale[c] images[index[b], c, h', w'] + shift[c];
//                   shift[c] where (h', w') is outside; 0 in a's cut
// images uint8 [M, C, H, W], y [B, C, H, W] floating, index int64 [B] (b is skipped where it is not
// in [0, M)): all contiguous; epoch int64 [], so that a captured step goes on with the next one;
// scale, shift float32 [C].
KERNEL(augment_images,
       (const Tensor& y, const Tensor& images, const Tensor& index, const Tensor& epoch,
        const Tensor& scale, const Tensor& shift, const AugmentOptions& options));

// ---- optimizers, over flat arrays [n] -----------------------------------------------------------
// lr (float64 []) and step (int64 []: steps taken before this one) live on the device, so that a
// captured step needs no host. Where lr is NaN nothing changes: a step can be skipped without
// asking the device. One floating dtype.
struct SgdStepOptions {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};
// Momentum as PyTorch has it:
//   g = grad + weight_decay param
//   buffer = step == 0 ? g : momentum buffer + (1 - dampening) g
//   param -= lr (nesterov ? g + momentum buffer : buffer)
// buffer is undefined when momentum is 0: param -= lr g.
KERNEL(sgd_step, (const Tensor& param, const Tensor& buffer, const Tensor& grad, const Tensor& lr,
                  const Tensor& step, const SgdStepOptions& options));
struct AdamStepOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  // AdamW (Loshchilov & Hutter 2019): param -= lr weight_decay param instead of adding to g.
  bool decoupled = false;
};
// Adam (Kingma & Ba 2015, Algorithm 1) with t = step + 1:
//   m = β1 m + (1 - β1) g;  v = β2 v + (1 - β2) g²
//   param -= lr m / (1 - β1^t) / (sqrt(v / (1 - β2^t)) + eps)
KERNEL(adam_step, (const Tensor& param, const Tensor& m, const Tensor& v, const Tensor& grad,
                   const Tensor& lr, const Tensor& step, const AdamStepOptions& options));
// The three below take their weight decay from the gradient, g += weight_decay param, as Adam does,
// and an undefined array where an option makes it needless.
struct RmspropStepOptions {
  double alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
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
  double lr_decay = 0, eps = 1e-10, weight_decay = 0, initial = 0;
};
// Duchi, Hazan & Singer 2011:
//   sum += g²;  param -= lr / (1 + step lr_decay) g / (sqrt(initial + sum) + eps)
KERNEL(adagrad_step, (const Tensor& param, const Tensor& sum, const Tensor& grad, const Tensor& lr,
                      const Tensor& step, const AdagradStepOptions& options));
struct AdadeltaStepOptions {
  double rho = 0.9, eps = 1e-6, weight_decay = 0;
};
// Zeiler 2012:
//   v = ρ v + (1 - ρ) g²;  d = sqrt(u + eps) / sqrt(v + eps) g;  u = ρ u + (1 - ρ) d²
//   param -= lr d
KERNEL(adadelta_step, (const Tensor& param, const Tensor& v, const Tensor& u, const Tensor& grad,
                       const Tensor& lr, const Tensor& step, const AdadeltaStepOptions& options));

#undef KERNEL

}  // namespace ringgrad::kernels

// batch_norm and its backward as the steps of the contract, one after the other: each device
// registers them as its own.
namespace ringgrad {
void batch_norm_in_steps(Stream, const Tensor& y, const Tensor& positive, const Tensor& mean,
                         const Tensor& var, const Tensor& x, const Tensor& weight,
                         const Tensor& bias, const Tensor& residual, double eps, bool relu,
                         const kernels::RunningStatistics& running);
// `mean` and `var` are a batch's of `count` elements per channel.
void update_running(const kernels::RunningStatistics& running, const Tensor& mean,
                    const Tensor& var, double count);
void batch_norm_backward_in_steps(Stream, const Tensor& sum_dy, const Tensor& sum_dy_xhat,
                                  const Tensor& dx, const Tensor& dresidual, const Tensor& dy,
                                  const Tensor& x, const Tensor& y, const Tensor& mean,
                                  const Tensor& var, const Tensor& weight, double eps);
// What reaches the normalised value, for libraries that take no y: dy where y > 0 (all of dy
// without y), in dresidual where that is wanted.
Tensor batch_norm_rectified(const Tensor& dresidual, const Tensor& dy, const Tensor& y);
}  // namespace ringgrad
