// THE CONTRACT: every primitive that a device must provide, with its formula, shapes and requirements.
//
// Rules that hold for all of them
//   * Outputs come first and are allocated by the caller. All tensors are on one device (copies excepted).
//   * Shapes in brackets. "Row-wise" kernels see [N, C] contiguous; the caller has brought the dimension to the end.
//   * Elementwise kernels: every tensor has the same shape (the caller expands: stride 0) and dtype unless said
//     otherwise, any strides; or all are channel-blocked. An output may be the very same array as an input.
//   * 16-bit floating types are computed and accumulated in float32 (except in pooling's backward: where windows
//     overlap, a pixel's gradients are added one by one in the 16-bit type, rounded after each); float32 sums use
//     float32 partial sums of at most a few thousand terms, combined in a fixed order that does not depend on the
//     number of threads. (Products of matrices and convolutions combine theirs in float32 again, and on some devices
//     add all terms of an output one by one, as index_add and scatter_add do.)
//   * kVendorToo: a vendor's library may do it as well. No output is among the inputs or read, so that both may be run
//     to see which is faster. (Not max pooling: libraries remember where the maximum was in ways of their own.)
//   * Zero elements are fine everywhere. Callers (autograd/ops) have validated shapes and dtypes: kernels ASSERT,
//     and throw DTypeError where they have nothing for a dtype.
//   * Gradients are written dy, dx, dw, db; dx means d(loss)/dx. Optional tensors may be undefined.
#pragma once

#include "ringgrad/core/kernels/augmentation.h"
#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad::kernels {

// ---- memory -----------------------------------------------------------------------------------------------------
// x = value, converted to x's dtype. Any dtype.
extern constinit Kernel<void(const Tensor& x, double value)> fill;
// y = x, converted to y's dtype. Same shape; any dtypes, strides and layouts; x may be on another device.
extern constinit Kernel<void(const Tensor& y, const Tensor& x)> copy;
// The same from a device to the host, where the device does the work: called with the source first. Waits for it.
extern constinit Kernel<void(const Tensor& x, const Tensor& host_y)> copy_to_host;

// ---- elementwise arithmetic: any dtype but bool -------------------------------------------------------------------
extern constinit Kernel<void(const Tensor& y, const Tensor& x, double scale, double shift)> affine;  // scale x + shift
extern constinit Kernel<void(const Tensor& y, const Tensor& x, double alpha, double beta)> axpby;    // alpha x + beta y
extern constinit Kernel<void(const Tensor& y, const Tensor& a, const Tensor& b)> add;
extern constinit Kernel<void(const Tensor& y, const Tensor& a, const Tensor& b)> sub;
extern constinit Kernel<void(const Tensor& y, const Tensor& a, const Tensor& b)> mul;
extern constinit Kernel<void(const Tensor& y, const Tensor& a, const Tensor& b)> div;
extern constinit Kernel<void(const Tensor& y, const Tensor& a, const Tensor& b)> maximum;  // NaN wins
// da = 0 where a < b, dy/2 where equal, else (a > b, or one of them is NaN) dy; db the other way round.
extern constinit Kernel<void(const Tensor& da, const Tensor& db, const Tensor& dy, const Tensor& a, const Tensor& b)>
    maximum_backward;
extern constinit Kernel<void(const Tensor& y, const Tensor& a, const Tensor& b)> equal;  // y bool: a == b

// ---- elementwise functions: floating dtypes -----------------------------------------------------------------------
extern constinit Kernel<void(const Tensor& y, const Tensor& x)> exp;
extern constinit Kernel<void(const Tensor& y, const Tensor& x)> log;
extern constinit Kernel<void(const Tensor& y, const Tensor& x)> sqrt;
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& y)> sqrt_backward;  // dy / (2 y)
extern constinit Kernel<void(const Tensor& y, const Tensor& x)> abs;
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& x)> abs_backward;  // dy sign(x); 0 at 0
extern constinit Kernel<void(const Tensor& y, const Tensor& x, double exponent)> pow;
// dy exponent x^(exponent - 1); 0 where exponent is 0
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& x, double exponent)> pow_backward;
extern constinit Kernel<void(const Tensor& y, const Tensor& x, double low, double high)> clamp;  // NaN stays NaN
// dy where low <= x <= high, else 0
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& x, double low, double high)>
    clamp_backward;
extern constinit Kernel<void(const Tensor& y, const Tensor& x)> relu;                              // max(x, 0)
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& y)> relu_backward;  // dy where y > 0
extern constinit Kernel<void(const Tensor& y, const Tensor& x, double slope)> leaky_relu;  // x > 0 ? x : slope x
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& x, double slope)> leaky_relu_backward;
extern constinit Kernel<void(const Tensor& y, const Tensor& x)> sigmoid;  // 1 / (1 + e^-x), without overflow
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& y)> sigmoid_backward;  // dy y (1 - y)
extern constinit Kernel<void(const Tensor& y, const Tensor& x)> tanh;
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& y)> tanh_backward;  // dy (1 - y²)
extern constinit Kernel<void(const Tensor& y, const Tensor& x)> gelu;  // x Φ(x), Φ by erf (Hendrycks & Gimpel 2016)
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& x)> gelu_backward;
extern constinit Kernel<void(const Tensor& y, const Tensor& x)> silu;  // x sigmoid(x)
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& x)> silu_backward;
// Binary cross entropy of logits x and targets t in [0, 1]: max(x, 0) - x t + log(1 + e^-|x|); dx = dy (sigmoid(x) - t)
extern constinit Kernel<void(const Tensor& y, const Tensor& x, const Tensor& t)> bce_with_logits;
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& t)>
    bce_with_logits_backward;

// ---- reductions ---------------------------------------------------------------------------------------------------
// y = scale * sum of x over the dimensions in which y has size 1 and x has not. Same number of dimensions; x any
// strides; y contiguous. Any dtype but bool; an empty sum is 0.
extern constinit Kernel<void(const Tensor& y, const Tensor& x, double scale)> sum;
// y[] = sum of x², x floating and contiguous; y float32 (float64 for float64 x).
extern constinit Kernel<void(const Tensor& y, const Tensor& x)> sum_squares;
// record[] = min(record, base + i) over the i for which x[i] is NaN or infinite. record int64, x floating, contiguous.
extern constinit Kernel<void(const Tensor& record, const Tensor& x, int64_t base)> find_not_finite;
// x [O, N, I], y and index (int64) [O, I], all contiguous: the largest (smallest) over N and where it is, the first
// of equals; a NaN wins. REQUIRES: N >= 1.
extern constinit Kernel<void(const Tensor& y, const Tensor& index, const Tensor& x)> max;
extern constinit Kernel<void(const Tensor& y, const Tensor& index, const Tensor& x)> min;

// ---- matrix product -----------------------------------------------------------------------------------------------
// c[b] = a[b] · b[b] + bias:  a [B, M, K], b [B, K, N], c [B, M, N] contiguous, bias [N] or undefined. a and b may have
// any strides (transposed, expanded). Floating dtypes. K = 0 gives the bias (or zeros).
extern constinit Kernel<void(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias), kVendorToo> matmul;

// ---- convolution (cross-correlation, as in every framework) -------------------------------------------------------
// y[n,k,p,q] = b[k] + sum_{c,r,s} x[n, c, p·stride + r·dilation - padding, …] · w[k,c,r,s]
//   x [N, C, H, W], y [N, K, P, Q] of the same floating dtype, both contiguous or both in conv2d_layout(); x may be
//   contiguous there, too, where C is less than a block. w [K, C/groups, R, S], b [K] or undefined: contiguous, in the
//   same dtype, or float32 where that has 16 bits. C and K are multiples of groups.
extern constinit Kernel<
    void(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b, const Conv2dOptions& options), kVendorToo>
    conv2d;
// dx from dy: the transposed convolution. dw from dy and x. (db is the sum of dy over N, H, W.) dx is like dy, dw like
// w.
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& w, const Conv2dOptions& options),
                        kVendorToo>
    conv2d_backward_input;
extern constinit Kernel<void(const Tensor& dw, const Tensor& dy, const Tensor& x, const Conv2dOptions& options),
                        kVendorToo>
    conv2d_backward_weight;
// The layout in which a device's convolutions are fastest: what the operation chooses, and what those after it keep.
Layout conv2d_layout(const Tensor& x, const Tensor& w, const Conv2dOptions& options);

// ---- pooling: x [N, C, H, W], y [N, C, P, Q], index: contiguous, or all in pool2d_layout() --------------------------
Layout pool2d_layout(const Tensor& x);  // x's own where the device has kernels for it, else strided
// index (int32, shape of y): h·W + w of the maximum inside its plane; the first of equals in row order.
extern constinit Kernel<void(const Tensor& y, const Tensor& index, const Tensor& x, const Pool2dOptions& options)>
    max_pool2d;
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& index, const Pool2dOptions& options)>
    max_pool2d_backward;
extern constinit Kernel<void(const Tensor& y, const Tensor& x, const Pool2dOptions& options), kVendorToo> avg_pool2d;
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Pool2dOptions& options), kVendorToo>
    avg_pool2d_backward;
// Window i of P covers rows ⌊i H / P⌋ … ⌈(i + 1) H / P⌉ - 1, and columns likewise.
extern constinit Kernel<void(const Tensor& y, const Tensor& x)> adaptive_avg_pool2d;
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy)> adaptive_avg_pool2d_backward;

// ---- batch normalisation (Ioffe & Szegedy 2015), in four steps so that ranks can sum between them -----------------
// x [N, C, H, W] (or any [N, C, …]), y, residual and their gradients: contiguous, or all in batch_norm_layout();
// everything per channel is [C], float32 (float64 for float64 x).
// xhat = (x - mean) / sqrt(var + eps);  y = act(weight xhat + bias + residual), act = relu or identity.
Layout batch_norm_layout(const Tensor& x);  // x's own where the device has kernels for it, else strided
extern constinit Kernel<void(const Tensor& mean, const Tensor& var, const Tensor& x)> batch_norm_stats;  // biased var
extern constinit Kernel<void(const Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& var,
                             const Tensor& weight, const Tensor& bias, const Tensor& residual, double eps, bool relu)>
    batch_norm_apply;
// With g = dy where y > 0 (all of dy without relu):  sum_dy = sum g,  sum_dy_xhat = sum g xhat.  y is undefined
// without relu.
extern constinit Kernel<void(const Tensor& sum_dy, const Tensor& sum_dy_xhat, const Tensor& dy, const Tensor& x,
                             const Tensor& y, const Tensor& mean, const Tensor& var, double eps)>
    batch_norm_backward_reduce;
// dx = weight / sqrt(var + eps) · (g - sum_dy / count - xhat sum_dy_xhat / count);  dresidual = g where defined.
// With count = infinity: the gradient where mean and var are constants (evaluation mode), which is made of g alone,
// whatever the sums and x are (0 inf is not 0).
extern constinit Kernel<void(const Tensor& dx, const Tensor& dresidual, const Tensor& dy, const Tensor& x,
                             const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& weight,
                             const Tensor& sum_dy, const Tensor& sum_dy_xhat, double eps, double count)>
    batch_norm_backward_apply;
// The same for one rank alone, where nothing is summed in between: stats and apply in one call, then reduce and apply
// with count = the number of elements of a channel. dx may be undefined (then dresidual is): only the sums are wanted.
extern constinit Kernel<void(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                             const Tensor& weight, const Tensor& bias, const Tensor& residual, double eps, bool relu),
                        kVendorToo>
    batch_norm;
extern constinit Kernel<void(const Tensor& sum_dy, const Tensor& sum_dy_xhat, const Tensor& dx, const Tensor& dresidual,
                             const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& mean, const Tensor& var,
                             const Tensor& weight, double eps),
                        kVendorToo>
    batch_norm_backward;

// ---- row-wise: x, y [N, C] contiguous, C >= 1 ---------------------------------------------------------------------
// Layer normalisation (Ba, Kiros & Hinton 2016): y = weight (x - mean) rstd + bias; weight, bias [C] or undefined;
// mean, rstd [N]. All four, and the gradients dweight and dbias, are in the accumulation type.
extern constinit Kernel<void(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                             const Tensor& weight, const Tensor& bias, double eps)>
    layer_norm;
extern constinit Kernel<void(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                             const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight)>
    layer_norm_backward;
// y = e^(x - m) / sum_c e^(x - m), m = max_c x;  log_softmax is its logarithm, computed as x - m - log(sum).
extern constinit Kernel<void(const Tensor& y, const Tensor& x)> softmax;
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& y)> softmax_backward;  // y (dy - Σ dy y)
extern constinit Kernel<void(const Tensor& y, const Tensor& x)> log_softmax;
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& y)>
    log_softmax_backward;  // dy - e^y Σ dy

// Cross entropy of logits x [N, C] with targets t [N] (int64), class weights u [C] or undefined, smoothing s:
//   loss[n] = -(1 - s) u[t] logp[t] - s/C Σ_c u[c] logp[c],  weight[n] = u[t],  logp = log_softmax(x[n])
// and both 0 where t == ignore_index; another t outside [0, C) gives NaN. loss, weight [N] and log_sum_exp [N, 2] have
// x's accumulation type. The latter are max x and log Σ e^(x - max): their sum would lose what a large max leaves over.
struct CrossEntropyOptions {
  double label_smoothing = 0;
  int64_t ignore_index = -100;
};
extern constinit Kernel<void(const Tensor& loss, const Tensor& weight, const Tensor& log_sum_exp, const Tensor& x,
                             const Tensor& t, const Tensor& class_weight, const CrossEntropyOptions& options)>
    cross_entropy;
// dx = scale[n] · d(loss[n])/dx;  scale [N] in the accumulation type.
extern constinit Kernel<void(const Tensor& dx, const Tensor& scale, const Tensor& x, const Tensor& log_sum_exp,
                             const Tensor& t, const Tensor& class_weight, const CrossEntropyOptions& options)>
    cross_entropy_backward;
// The same for x that already holds log-probabilities, without smoothing: loss[n] = -u[t] x[n, t].
extern constinit Kernel<void(const Tensor& loss, const Tensor& weight, const Tensor& x, const Tensor& t,
                             const Tensor& class_weight, int64_t ignore_index)>
    nll_loss;
extern constinit Kernel<void(const Tensor& dx, const Tensor& scale, const Tensor& t, const Tensor& class_weight,
                             int64_t ignore_index)>
    nll_loss_backward;

// ---- indexing: index is int64 with values in [0, N), all contiguous, any dtype ------------------------------------
// Values outside are never read or written: what they would give stays as it was (the operations refuse them earlier).
extern constinit Kernel<void(const Tensor& y, const Tensor& x, const Tensor& index)>
    index_select;  // y[o, j, i] = x[o, index[j], i]       x [O, N, I], index [M], y [O, M, I]
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& index)>
    index_add;  // dx[o, index[j], i] += dy[o, j, i], in the order of j
extern constinit Kernel<void(const Tensor& y, const Tensor& x, const Tensor& index)>
    gather;  // y[o, j, i] = x[o, index[o, j, i], i]           x [O, N, I], index and y [O, M, I]
extern constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& index)>
    scatter_add;  // dx[o, index[o, j, i], i] += dy[o, j, i], in the order of j

// ---- random numbers: Philox4x32-10 (Salmon et al. 2011), see core/random.h for the exact stream ---------------------
// state (int64 [2]: seed, offset) is read on the device. snapshot = state, then state.offset += count.
extern constinit Kernel<void(const Tensor& snapshot, const Tensor& state, int64_t count)> advance_random_state;
extern constinit Kernel<void(const Tensor& x, const Tensor& state, double low, double high)> uniform;
extern constinit Kernel<void(const Tensor& x, const Tensor& state, double mean, double std)> normal;
// y = x / (1 - p) where element i's uniform number is >= p, else 0. The same call with dy gives dx: no mask is kept.
extern constinit Kernel<void(const Tensor& y, const Tensor& x, const Tensor& state, double p)> dropout;

// ---- batches of images, from a data set of bytes --------------------------------------------------------------------
// With a = draw_augmentation(options, H, W, epoch, index[b]) and (h', w') = (h + a.dy, (a.flip ? W - 1 - w : w) +
// a.dx):
//   y[b, c, h, w] = scale[c] images[index[b], c, h', w'] + shift[c];  shift[c] where (h', w') is outside; 0 in a's cut
// images uint8 [M, C, H, W], y [B, C, H, W] floating, index int64 [B] (b is skipped where it is not in [0, M)): all
// contiguous; epoch int64 [], so that a captured step goes on with the next one; scale, shift float32 [C].
extern constinit Kernel<void(const Tensor& y, const Tensor& images, const Tensor& index, const Tensor& epoch,
                             const Tensor& scale, const Tensor& shift, const AugmentOptions& options)>
    augment_images;

// ---- optimizers, over flat arrays [n] -------------------------------------------------------------------------------
// lr (float64 []) and step (int64 []: steps taken before this one) live on the device, so that a captured step needs
// no host. Where lr is NaN nothing changes: a step can be skipped without asking the device. One floating dtype.
struct SgdStepOptions {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};
// g = grad + weight_decay param;  buffer = step == 0 ? g : momentum buffer + (1 - dampening) g;
// param -= lr (nesterov ? g + momentum buffer : buffer).  buffer is undefined when momentum is 0: param -= lr g.
extern constinit Kernel<void(const Tensor& param, const Tensor& buffer, const Tensor& grad, const Tensor& lr,
                             const Tensor& step, const SgdStepOptions& options)>
    sgd_step;
struct AdamStepOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;  // AdamW (Loshchilov & Hutter 2019): param -= lr weight_decay param instead of adding to g
};
// Adam (Kingma & Ba 2015, Algorithm 1) with t = step + 1:
// m = β1 m + (1 - β1) g;  v = β2 v + (1 - β2) g²;  param -= lr m / (1 - β1^t) / (sqrt(v / (1 - β2^t)) + eps)
extern constinit Kernel<void(const Tensor& param, const Tensor& m, const Tensor& v, const Tensor& grad,
                             const Tensor& lr, const Tensor& step, const AdamStepOptions& options)>
    adam_step;

}  // namespace ringgrad::kernels

// batch_norm and its backward as the steps of the contract, one after the other: each device registers them as its own.
namespace ringgrad {

inline void batch_norm_in_steps(Stream, const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                                const Tensor& weight, const Tensor& bias, const Tensor& residual, double eps,
                                bool relu) {
  kernels::batch_norm_stats(mean, var, x);
  kernels::batch_norm_apply(y, x, mean, var, weight, bias, residual, eps, relu);
}

inline void batch_norm_backward_in_steps(Stream, const Tensor& sum_dy, const Tensor& sum_dy_xhat, const Tensor& dx,
                                         const Tensor& dresidual, const Tensor& dy, const Tensor& x, const Tensor& y,
                                         const Tensor& mean, const Tensor& var, const Tensor& weight, double eps) {
  kernels::batch_norm_backward_reduce(sum_dy, sum_dy_xhat, dy, x, y, mean, var, eps);
  if (!dx) return;
  const double count = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
  kernels::batch_norm_backward_apply(dx, dresidual, dy, x, y, mean, var, weight, sum_dy, sum_dy_xhat, eps, count);
}

}  // namespace ringgrad
