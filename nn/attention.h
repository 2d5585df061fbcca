// Attention and the encoder of a transformer (Vaswani et al. 2017), with PyTorch's names and state.
#pragma once

#include <tuple>

#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/sequential.h"

namespace ringgrad::nn {

struct MultiheadAttentionOptions {
  OnlyByName only_by_name = OnlyByName();
  double dropout = 0;  // drops attention weights in training
  bool bias = true;
  bool batch_first = false;
};

struct AttentionOptions {
  Tensor key_padding_mask = {};  // bool [N, S], true for excluded keys; or a term to add
  bool need_weights = true;
  Tensor attn_mask = {};  // the same as [L, S], or for each sample and head [N H, L, S]
};

// The last projection, under its name in PyTorch's printed text.
class NonDynamicallyQuantizableLinear : public Linear {
  using Linear::Linear;
};

// softmax(q kᵀ / √d) v in num_heads parts of d = embed_dim / num_heads features, with projections
// before and after. q is [L, N, embed_dim], k and v are [S, N, embed_dim]. With batch_first N comes
// first, and N may be absent. Returns y, which has q's shape, and the weights [N, L, S], averaged
// over the heads; they are undefined if not needed.
class MultiheadAttention : public Module {
 public:
  MultiheadAttention(Int64 embed_dim, Int64 num_heads, MultiheadAttentionOptions options = {});
  using Module::forward;
  std::tuple<Tensor, Tensor> operator()(const Tensor& q, const Tensor& k, const Tensor& v,
                                        const AttentionOptions& options = {});

  Parameter in_proj_weight;  // [3 embed_dim, embed_dim]: for q, k and v
  Parameter in_proj_bias;    // [3 embed_dim] or undefined
  NonDynamicallyQuantizableLinear out_proj;

 private:
  int64_t embed_dim_;
  int64_t num_heads_;
  MultiheadAttentionOptions options_;
};

enum class TransformerActivation : uint8_t { Relu, Gelu };
struct TransformerOptions {
  OnlyByName only_by_name = OnlyByName();
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  TransformerActivation activation = TransformerActivation::Relu;
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;
  bool bias = true;
};

// Self-attention of x [T, N, d_model] (N first with batch_first), then two linear layers. Both
// parts have a shortcut and layer norm. src_mask and src_key_padding_mask are as in
// AttentionOptions.
class TransformerEncoderLayer : public Module {
 public:
  TransformerEncoderLayer(Int64 d_model, Int64 nhead, TransformerOptions options = {});
  Tensor forward(const Tensor& x) override { return forward(x, {}); }
  Tensor forward(const Tensor& x, const Tensor& src_mask, const Tensor& src_key_padding_mask = {});
  using Module::operator();
  Tensor operator()(const Tensor& x, const Tensor& src_mask,
                    const Tensor& src_key_padding_mask = {}) {
    return after_hooks(x, forward(x, src_mask, src_key_padding_mask));
  }

  MultiheadAttention self_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1;
  LayerNorm norm2;
  Dropout dropout1;
  Dropout dropout2;

 private:
  TransformerOptions options_;
};

// num_layers encoder layers with separate weights.
class TransformerEncoder : public Module {
 public:
  TransformerEncoder(Int64 num_layers, Int64 d_model, Int64 nhead, TransformerOptions options = {});
  Tensor forward(const Tensor& x) override { return forward(x, {}); }
  Tensor forward(const Tensor& x, const Tensor& mask, const Tensor& src_key_padding_mask = {});
  using Module::operator();
  Tensor operator()(const Tensor& x, const Tensor& mask, const Tensor& src_key_padding_mask = {}) {
    return after_hooks(x, forward(x, mask, src_key_padding_mask));
  }

  ModuleList layers;
};

// Returns [size, size] for attn_mask: 0 for positions up to a query's own, and -∞ for later ones.
Tensor generate_square_subsequent_mask(Int64 size, TensorOptions options = {});

}  // namespace ringgrad::nn
