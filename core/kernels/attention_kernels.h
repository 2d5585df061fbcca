// THE CONTRACT of attention without the matrix of its weights. The rules are those of
// core/kernels/classifier_kernels.h.
#pragma once

#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad::kernels {

#define KERNEL(name, arguments, ...) \
  inline constinit Kernel<void arguments __VA_OPT__(, ) __VA_ARGS__> name { #name }

struct AttentionRule {
  double scale = 1;
  bool is_causal = false;  // query i uses keys up to i
  double dropout_p = 0;    // of the weights
};

// Attention (Vaswani et al. 2017) in the manner of FlashAttention-2 (Dao 2023). A kernel sees a few
// keys of a few queries at a time, and never has all weights [L, S] of a head.
//   s = scale q kᵀ + mask;  lse = log Σ e^s;  p = e^(s - lse);  y = (p z) v
// q [B, H, L, E], k [B, H, S, E], v [B, H, S, F], y [B, H, L, F], all of one dtype. Their last
// dimensions are contiguous, the others have any strides. logsumexp [B, H, L] is contiguous and has
// the accumulation dtype. It is ∞ for queries without a key, whose p and y are 0.
//
// mask [B, H, L, S] has any strides. It is bool, false for keys that a query does not use, or it
// has a floating dtype and is added. It may be undefined. Values of unused keys need not be read.
//
// z is 1 / (1 - dropout_p) where dropout() keeps an element of contiguous [B, H, L, S], and else 0.
// The state is dropout's, and undefined without dropout.
KERNEL(attention,
       (const Tensor& y, const Tensor& logsumexp, const Tensor& q, const Tensor& k, const Tensor& v,
        const Tensor& mask, const Tensor& state, const AttentionRule& rule));
// With dp = (dy vᵀ) z and d = p (dp - Σ dy y), where the sum is over a row of dy:
//   dq = scale d k;  dk = scale dᵀ q;  dv = (p z)ᵀ dy
// p is computed again, from the logsumexp. dq, dk, dv and dy have strides like q, k, v and y.
KERNEL(attention_backward,
       (const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dy, const Tensor& q,
        const Tensor& k, const Tensor& v, const Tensor& y, const Tensor& logsumexp,
        const Tensor& mask, const Tensor& state, const AttentionRule& rule));

#undef KERNEL

}  // namespace ringgrad::kernels
