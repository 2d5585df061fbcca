// The kernels that train a convolutional classifier of images: a part of the contract, whose rules
// stand in core/kernels.h.
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

// ---- elementwise --------------------------------------------------------------------------------
// Any dtype but bool. A number is converted to the type in which the elements are computed;
// integers wrap. scale x + shift.
KERNEL(affine, (const Tensor& y, const Tensor& x, Scalar scale, Scalar shift));
// alpha x + beta y.
KERNEL(axpby, (const Tensor& y, const Tensor& x, Scalar alpha, Scalar beta));
KERNEL(add, (const Tensor& y, const Tensor& a, const Tensor& b));
KERNEL(div, (const Tensor& y, const Tensor& a, const Tensor& b));

// Any dtype. y bool: a == b.
KERNEL(equal, (const Tensor& y, const Tensor& a, const Tensor& b));

// Floating dtypes. max(x, 0); NaN stays NaN.
KERNEL(relu, (const Tensor& y, const Tensor& x));
// dy where y > 0.
KERNEL(relu_backward, (const Tensor& dx, const Tensor& dy, const Tensor& y));

// ---- reduction ----------------------------------------------------------------------------------
// y = scale * sum of x over the dimensions in which y has size 1 and x has not. Same number of
// dimensions; x any strides; y contiguous. Any dtype but bool; an empty sum is 0. y may be wider
// than a floating x: float32, or float64, in which the terms are added then.
KERNEL(sum, (const Tensor& y, const Tensor& x, double scale));

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
// Averages over the batches so far, which a call updates: mean = (1 - momentum) mean + momentum ·
// the batch's, var likewise with the batch's unbiased variance, [C] like those, and batches, int64
// [], counts one more. Each may be undefined. To see which provider is faster a call is run several
// times, then without this.
struct RunningStatistics {
  Tensor mean;
  Tensor var;
  Tensor batches;
  double momentum = 0;
  RunningStatistics when_timed() const { return {}; }
};
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

// ---- loss ---------------------------------------------------------------------------------------
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

// ---- random numbers: core/random.h has the exact stream -----------------------------------------
// state (int64 [2]: seed, offset) is read on the device. snapshot = state, then state.offset +=
// count.
KERNEL(advance_random_state, (const Tensor& snapshot, const Tensor& state, int64_t count));
KERNEL(uniform, (const Tensor& x, const Tensor& state, double low, double high));
KERNEL(normal, (const Tensor& x, const Tensor& state, double mean, double std));

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
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
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
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  // AdamW (Loshchilov & Hutter 2019): param -= lr weight_decay param instead of adding to g.
  bool decoupled = false;
};
// Adam (Kingma & Ba 2015, Algorithm 1) with t = step + 1:
//   m = β1 m + (1 - β1) g;  v = β2 v + (1 - β2) g²
//   param -= lr m / (1 - β1^t) / (sqrt(v / (1 - β2^t)) + eps)
KERNEL(adam_step, (const Tensor& param, const Tensor& m, const Tensor& v, const Tensor& grad,
                   const Tensor& lr, const Tensor& step, const AdamStepOptions& options));

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
