// The kernels that train a convolutional image classifier, and the rules that hold for all kernels.
// They are part of THE CONTRACT: core/kernels.h has the others that a device must provide.
//
// Rules for all kernels
//   * Outputs come first and are allocated by the caller. All tensors are on one device, except in
//     copies.
//   * Shapes are in brackets. "Row-wise" kernels take contiguous [N, C]; the caller has moved the
//     dimension to the end.
//   * In elementwise kernels every tensor has the same shape (the caller expands it: stride 0). It
//     also has the same dtype unless the kernel says otherwise. Either strides are arbitrary, or
//     all tensors are channel-blocked. An output may be the same array as an input.
//   * 16-bit floating types are computed and accumulated in float32. Pooling's backward is the
//     exception: where windows overlap, a pixel's gradients are added one by one in the 16-bit
//     type, rounded after each.
//   * float32 sums use float32 partial sums of at most a few thousand terms. They are combined in a
//     fixed order that does not depend on the number of threads. Matrix products and convolutions
//     combine their partial sums in float32, too. On some devices they add all terms of an output
//     one by one, as index_add and scatter_add do.
//   * kVendorToo marks kernels that a vendor's library may implement as well. Autotuning runs both
//     implementations to see which is faster. So no output may be an input or be read. If an
//     argument breaks this rule, when_timed() gives its replacement. Max pooling is not marked,
//     because libraries store the maximum's position in their own formats.
//   * Tensors without elements are allowed everywhere. The callers (autograd/ops) have validated
//     shapes and dtypes. Kernels only ASSERT, and throw DTypeError if they do not support a dtype.
//   * Gradients are written dy, dx, dw, db; dx means d(loss)/dx. Optional tensors may be undefined.
#pragma once

#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad::kernels {

// KERNEL(name, (arguments) [, kVendorToo]) defines a kernel's table. Because it is constinit, the
// table exists before any file registers an implementation.
#define KERNEL(name, arguments, ...) \
  inline constinit Kernel<void arguments __VA_OPT__(, ) __VA_ARGS__> name { #name }

// ---- memory -------------------------------------------------------------------------------------
// Sets x to the value, converted to x's dtype. Any dtype.
KERNEL(fill, (const Tensor& x, Scalar value));
// y = x, converted to y's dtype. The shapes are equal. Dtypes, strides and layouts are arbitrary,
// and x may be on another device.
KERNEL(copy, (const Tensor& y, const Tensor& x));
// Does the same from a device to the host. The source comes first, because the source's device does
// the work. Waits for it.
KERNEL(copy_to_host, (const Tensor& x, const Tensor& host_y));

// ---- elementwise --------------------------------------------------------------------------------
// y = scale x + shift. Any dtype but bool. Numbers are converted to the type in which the elements
// are computed; integers wrap.
KERNEL(affine, (const Tensor& y, const Tensor& x, Scalar scale, Scalar shift));
// y = alpha x + beta y.
KERNEL(axpby, (const Tensor& y, const Tensor& x, Scalar alpha, Scalar beta));
KERNEL(add, (const Tensor& y, const Tensor& a, const Tensor& b));
KERNEL(div, (const Tensor& y, const Tensor& a, const Tensor& b));

// y (bool) = a == b. Any dtype.
KERNEL(equal, (const Tensor& y, const Tensor& a, const Tensor& b));

// y = max(x, 0); NaN stays NaN. Floating dtypes.
KERNEL(relu, (const Tensor& y, const Tensor& x));
// dx = dy where y > 0, else 0.
KERNEL(relu_backward, (const Tensor& dx, const Tensor& dy, const Tensor& y));

// ---- reduction ----------------------------------------------------------------------------------
// y = scale Σ x over the dimensions in which y has size 1 and x does not. y is contiguous and has
// as many dimensions as x, whose strides are arbitrary. Any dtype but bool. An empty sum is 0. For
// floating x, y may be float32 or float64 and wider than x; the terms are then added in y's dtype.
KERNEL(sum, (const Tensor& y, const Tensor& x, double scale));

// ---- matrix product -----------------------------------------------------------------------------
// c[b] = a[b] · b[b] + bias. a [B, M, K], b [B, K, N], c [B, M, N] contiguous, bias [N] or
// undefined. a and b may have any strides (transposed, expanded). Floating dtypes. K = 0 gives the
// bias, or zeros.
KERNEL(matmul, (const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias), kVendorToo);

// ---- convolution (cross-correlation, as in every framework) -------------------------------------
// y[n,k,p,q] = b[k] + Σ_{c,r,s} x[n, c, p·stride + r·dilation - padding, …] · w[k,c,r,s]
//   x [N, C, H, W] and y [N, K, P, Q] have one floating dtype. Both are contiguous, or both have
//   the layout that the device's plan gives (LayoutPolicy); there x may also be contiguous if C is
//   less than a block. w [K, C/groups, R, S] and b [K] or undefined are contiguous. They have the
//   same dtype, or float32 if that dtype has 16 bits. w may also lie as the policy's
//   conv2d_filters() returns it. C and K are multiples of groups.
KERNEL(conv2d,
       (const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
        const Conv2dOptions& options),
       kVendorToo);
// dx = the transposed convolution of dy, plus addend. addend is undefined or laid out like dx. dx
// has the layout of dy.
KERNEL(conv2d_backward_input,
       (const Tensor& dx, const Tensor& dy, const Tensor& w, const Tensor& addend,
        const Conv2dOptions& options),
       kVendorToo);
// dw from dy and x. db is the sum of dy over N, H and W, and has no kernel of its own.
KERNEL(conv2d_backward_weight,
       (const Tensor& dw, const Tensor& dy, const Tensor& x, const Conv2dOptions& options),
       kVendorToo);

// ---- pooling ------------------------------------------------------------------------------------
// x [N, C, H, W], y [N, C, P, Q], index: contiguous, or all in the layout of LayoutPolicy::pool2d.
// The stride is never 0, because the operation has replaced 0 by the kernel's size. index (int32,
// shape of y) is h·W + w of the maximum inside its plane; of equal maxima it is the first in row
// order.
KERNEL(max_pool2d,
       (const Tensor& y, const Tensor& index, const Tensor& x, const Pool2dOptions& options));
KERNEL(max_pool2d_backward,
       (const Tensor& dx, const Tensor& dy, const Tensor& index, const Pool2dOptions& options));
KERNEL(avg_pool2d, (const Tensor& y, const Tensor& x, const Pool2dOptions& options), kVendorToo);
KERNEL(avg_pool2d_backward, (const Tensor& dx, const Tensor& dy, const Pool2dOptions& options),
       kVendorToo);
// y averages: window i of P covers rows ⌊i H / P⌋ … ⌈(i + 1) H / P⌉ - 1. Columns are alike.
KERNEL(adaptive_avg_pool2d, (const Tensor& y, const Tensor& x));
KERNEL(adaptive_avg_pool2d_backward, (const Tensor& dx, const Tensor& dy));

// ---- batch normalisation (Ioffe & Szegedy 2015), in four steps so that ranks can sum between them
// x [N, C, H, W] (or any [N, C, …]), y, residual and their gradients are contiguous, or all have
// the layout of LayoutPolicy::batch_norm. Everything per channel is [C] and float32 (float64 for
// float64 x).
//   xhat = (x - mean) / sqrt(var + eps)
//   y    = act(weight xhat + bias + residual), act = relu (NaN stays NaN) or identity
// var is biased.
KERNEL(batch_norm_stats, (const Tensor& mean, const Tensor& var, const Tensor& x));
// positive comes from LayoutPolicy::batch_norm_positive() or is undefined. With relu it receives a
// bit for each y: whether y > 0 before rounding. Backward reads it instead of y, which takes a 16th
// or a 32nd of the bytes.
KERNEL(batch_norm_apply, (const Tensor& y, const Tensor& positive, const Tensor& x,
                          const Tensor& mean, const Tensor& var, const Tensor& weight,
                          const Tensor& bias, const Tensor& residual, double eps, bool relu));
// g = dy where y > 0. Without relu y is undefined, and g = dy.
//   sum_dy = Σ g,  sum_dy_xhat = Σ g xhat
KERNEL(batch_norm_backward_reduce,
       (const Tensor& sum_dy, const Tensor& sum_dy_xhat, const Tensor& dy, const Tensor& x,
        const Tensor& y, const Tensor& mean, const Tensor& var, double eps));
// The gradients, with the same g:
//   dx = weight / sqrt(var + eps) · (g - sum_dy / count - xhat sum_dy_xhat / count)
//   dresidual = g, if it is defined
// count = infinity gives the gradient for constant mean and var (evaluation mode). It then depends
// on g alone, whatever the sums and x are (0 · ∞ is not 0).
KERNEL(batch_norm_backward_apply,
       (const Tensor& dx, const Tensor& dresidual, const Tensor& dy, const Tensor& x,
        const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& weight,
        const Tensor& sum_dy, const Tensor& sum_dy_xhat, double eps, double count));
// Averages over the batches so far, which a call updates: mean = (1 - momentum) mean + momentum ·
// the batch's mean. var is updated likewise from the batch's unbiased variance. Both are [C].
// batches, int64 [], grows by 1. Each may be undefined. Autotuning runs a call several times; those
// runs update none of these.
struct RunningStatistics {
  Tensor mean;
  Tensor var;
  Tensor batches;
  double momentum = 0;
  RunningStatistics when_timed() const { return {}; }
};
// These serve a rank that does not sum with others. batch_norm is stats and apply in one call.
// batch_norm_backward is reduce, then apply with count = the number of elements of a channel. If
// only the sums are wanted, dx and dresidual are undefined.
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
// and smoothing s:
//   loss[n] = -(1 - s) u[t] logp[t] - s/C Σ_c u[c] logp[c],  logp = log_softmax(x[n])
//   weight[n] = u[t]
// Both are 0 where t == ignore_index. Another t outside [0, C) gives NaN. loss, weight [N] and
// log_sum_exp [N, 2] have x's accumulation dtype. log_sum_exp holds max x and log Σ e^(x - max)
// apart, because their sum would lose digits if the maximum is large.
struct CrossEntropyOptions {
  double label_smoothing = 0;
  int64_t ignore_index = -100;
};
KERNEL(cross_entropy,
       (const Tensor& loss, const Tensor& weight, const Tensor& log_sum_exp, const Tensor& x,
        const Tensor& t, const Tensor& class_weight, const CrossEntropyOptions& options));
// dx = scale[n] · d(loss[n])/dx. scale [N] has the accumulation dtype.
KERNEL(cross_entropy_backward,
       (const Tensor& dx, const Tensor& scale, const Tensor& x, const Tensor& log_sum_exp,
        const Tensor& t, const Tensor& class_weight, const CrossEntropyOptions& options));

// ---- random numbers: core/random.h has the exact stream -----------------------------------------
// state (int64 [2]: seed, offset) is read on the device. advance_random_state copies it to snapshot
// and then adds count to its offset.
KERNEL(advance_random_state, (const Tensor& snapshot, const Tensor& state, int64_t count));
KERNEL(uniform, (const Tensor& x, const Tensor& state, double low, double high));
KERNEL(normal, (const Tensor& x, const Tensor& state, double mean, double std));

// ---- optimizers, over flat arrays [n] -----------------------------------------------------------
// lr (float64 []) and step (int64 []: the number of steps before this one) are on the device, so
// that a captured step does not need the host. If lr is NaN, nothing changes; this skips a step
// without asking the device. All arrays have one floating dtype.
struct SgdStepOptions {
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};
// Momentum as in PyTorch:
//   g = grad + weight_decay param
//   buffer = step == 0 ? g : momentum buffer + (1 - dampening) g
//   param -= lr (nesterov ? g + momentum buffer : buffer)
// If momentum is 0, buffer is undefined and param -= lr g.
KERNEL(sgd_step, (const Tensor& param, const Tensor& buffer, const Tensor& grad, const Tensor& lr,
                  const Tensor& step, const SgdStepOptions& options));
struct AdamStepOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  // AdamW (Loshchilov & Hutter 2019): param -= lr weight_decay param, instead of adding it to g.
  bool decoupled = false;
};
// Adam (Kingma & Ba 2015, Algorithm 1) with t = step + 1:
//   m = β1 m + (1 - β1) g;  v = β2 v + (1 - β2) g²
//   param -= lr m / (1 - β1^t) / (sqrt(v / (1 - β2^t)) + eps)
// If max_v is defined (AMSGrad: Reddi, Kale & Kumar 2018), max_v = max(max_v, v) divides, not v.
KERNEL(adam_step,
       (const Tensor& param, const Tensor& m, const Tensor& v, const Tensor& max_v,
        const Tensor& grad, const Tensor& lr, const Tensor& step, const AdamStepOptions& options));

#undef KERNEL

}  // namespace ringgrad::kernels

// batch_norm and batch_norm_backward as the contract's steps, one after the other. Each device
// registers them as its own kernels.
namespace ringgrad {
void batch_norm_in_steps(Stream, const Tensor& y, const Tensor& positive, const Tensor& mean,
                         const Tensor& var, const Tensor& x, const Tensor& weight,
                         const Tensor& bias, const Tensor& residual, double eps, bool relu,
                         const kernels::RunningStatistics& running);
// Updates the averages with `mean` and `var` of a batch that has `count` elements per channel.
void update_running(const kernels::RunningStatistics& running, const Tensor& mean,
                    const Tensor& var, double count);
void batch_norm_backward_in_steps(Stream, const Tensor& sum_dy, const Tensor& sum_dy_xhat,
                                  const Tensor& dx, const Tensor& dresidual, const Tensor& dy,
                                  const Tensor& x, const Tensor& y, const Tensor& mean,
                                  const Tensor& var, const Tensor& weight, double eps);
}  // namespace ringgrad
