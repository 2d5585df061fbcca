#include "ringgrad/nn/attention.h"

#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/init.h"

namespace ringgrad::nn {
namespace {

// Returns the term that is added to the scores. A bool mask excludes keys where it is true.
Tensor added(const Tensor& mask, DType dtype) {
  if (mask.dtype() != DType::Bool) return to(mask, dtype);
  return where(mask, -INFINITY, zeros(mask.shape(), {dtype, mask.device()}));
}

}  // namespace

MultiheadAttention::MultiheadAttention(Int64 embed_dim, Int64 num_heads,
                                       MultiheadAttentionOptions options)
    : out_proj(embed_dim, embed_dim, {.bias = options.bias}),
      embed_dim_(embed_dim),
      num_heads_(num_heads),
      options_(options) {
  CHECK(num_heads > 0 && embed_dim % num_heads == 0, "MultiheadAttention: ", embed_dim,
        " features in ", num_heads, " heads, expected a multiple of the number of heads");
  in_proj_weight = register_parameter("in_proj_weight", empty({3 * embed_dim, embed_dim}));
  in_proj_bias =
      register_parameter("in_proj_bias", options.bias ? zeros({3 * embed_dim}) : Tensor());
  init::xavier_uniform_(in_proj_weight);
  register_module("out_proj", out_proj);
  if (options.bias) init::zeros_(out_proj.bias);
}

std::tuple<Tensor, Tensor> MultiheadAttention::operator()(const Tensor& q_, const Tensor& k_,
                                                          const Tensor& v_,
                                                          const AttentionOptions& options) {
  for (const Tensor* x : {&q_, &k_, &v_}) {
    CHECK(x->defined(), "MultiheadAttention: an input is an undefined tensor");
    CHECK_AS(ShapeError,
             (x->dim() == 2 || x->dim() == 3) && x->dim() == q_.dim() && x->size(-1) == embed_dim_,
             "MultiheadAttention: an input has shape ", x->shape(), ", expected ", embed_dim_,
             " features in 3 dimensions, or without a batch in 2");
  }
  if (q_.dim() == 2) {
    const int batch = options_.batch_first ? 0 : 1;
    const auto with_batch = [batch](const Tensor& x) { return unsqueeze(x, batch); };
    AttentionOptions of = options;
    if (of.key_padding_mask) of.key_padding_mask = unsqueeze(of.key_padding_mask, 0);
    const auto [y, weights] = (*this)(with_batch(q_), with_batch(k_), with_batch(v_), of);
    return {squeeze(y, batch), weights ? squeeze(weights, 0) : weights};
  }
  const int64_t width = embed_dim_ / num_heads_;
  // Returns part `which` of the projection as [N, heads, positions, width].
  const auto heads = [&](const Tensor& x, int which) {
    const auto part = [&](const Tensor& all) {
      return all ? slice(all, 0, which * embed_dim_, (which + 1) * embed_dim_) : all;
    };
    const Tensor of = linear(x, part(in_proj_weight), part(in_proj_bias));
    const Tensor parts = reshape(of, {x.size(0), x.size(1), num_heads_, width});
    return permute(parts, options_.batch_first ? Dims{0, 2, 1, 3} : Dims{1, 2, 0, 3});
  };
  const Tensor q = heads(q_, 0);
  const Tensor k = heads(k_, 1);
  const Tensor v = heads(v_, 2);
  const int64_t samples = q.size(0);
  Tensor attn_mask = options.attn_mask;
  Tensor keys = options.key_padding_mask;
  if (attn_mask && attn_mask.dim() == 3)
    attn_mask = reshape(attn_mask, {samples, num_heads_, attn_mask.size(1), attn_mask.size(2)});
  if (keys) {
    CHECK_AS(ShapeError, keys.shape() == Shape({samples, k.size(2)}),
             "MultiheadAttention: the key_padding_mask has shape ", keys.shape(), ", expected [",
             samples, ", ", k.size(2), "]");
    keys = unsqueeze(unsqueeze(keys, 1), 1);
  }
  // Masks of truth values stay such.
  const auto is_bool = [](const Tensor& mask) { return !mask || mask.dtype() == DType::Bool; };
  const bool excludes = is_bool(attn_mask) && is_bool(keys);
  const auto term = [&](const Tensor& mask) {
    return mask && !excludes ? added(mask, q.dtype()) : mask;
  };
  Tensor mask = term(attn_mask);
  if (keys && mask)
    mask = excludes ? Tensor(logical_or(mask, keys)) : add(mask, term(keys));
  else if (keys)
    mask = term(keys);
  const double dropout_p = is_training() ? options_.dropout : 0;
  Tensor y;
  Tensor weights;
  if (options.need_weights) {
    Tensor scores = matmul(mul(q, 1 / std::sqrt(static_cast<double>(width))), transpose(k, -2, -1));
    if (mask) scores = excludes ? masked_fill(scores, mask, -INFINITY) : add(scores, mask);
    const Tensor all = ringgrad::dropout(softmax(scores, -1), dropout_p, dropout_p > 0);
    weights = mean(all, 1);
    y = matmul(all, v);
  } else {
    if (mask && excludes) mask = logical_not(mask);  // true for keys that are used
    y = scaled_dot_product_attention(q, k, v, mask, dropout_p);
  }
  y = permute(y, options_.batch_first ? Dims{0, 2, 1, 3} : Dims{2, 0, 1, 3});
  return {out_proj(reshape(y, q_.shape())), weights};
}

TransformerEncoderLayer::TransformerEncoderLayer(Int64 d_model, Int64 nhead,
                                                 TransformerOptions options)
    : self_attn(
          d_model, nhead,
          {.dropout = options.dropout, .bias = options.bias, .batch_first = options.batch_first}),
      linear1(d_model, options.dim_feedforward, {.bias = options.bias}),
      dropout(options.dropout),
      linear2(options.dim_feedforward, d_model, {.bias = options.bias}),
      norm1({d_model}, {.eps = options.layer_norm_eps, .bias = options.bias}),
      norm2({d_model}, {.eps = options.layer_norm_eps, .bias = options.bias}),
      dropout1(options.dropout),
      dropout2(options.dropout),
      options_(options) {
  register_module("self_attn", self_attn);
  register_module("linear1", linear1);
  register_module("dropout", dropout);
  register_module("linear2", linear2);
  register_module("norm1", norm1);
  register_module("norm2", norm2);
  register_module("dropout1", dropout1);
  register_module("dropout2", dropout2);
}

Tensor TransformerEncoderLayer::forward(const Tensor& x, const Tensor& src_mask,
                                        const Tensor& src_key_padding_mask) {
  const auto attention = [&](const Tensor& of) {
    return dropout1(std::get<0>(self_attn(
        of, of, of,
        {.key_padding_mask = src_key_padding_mask, .need_weights = false, .attn_mask = src_mask})));
  };
  const auto feed_forward = [&](const Tensor& of) {
    const Tensor inner = linear1(of);
    const bool is_relu = options_.activation == TransformerActivation::Relu;
    return dropout2(linear2(dropout(is_relu ? relu(inner) : gelu(inner))));
  };
  if (options_.norm_first) {
    const Tensor y = add(x, attention(norm1(x)));
    return add(y, feed_forward(norm2(y)));
  }
  const Tensor y = norm1(add(x, attention(x)));
  return norm2(add(y, feed_forward(y)));
}

TransformerEncoder::TransformerEncoder(Int64 num_layers, Int64 d_model, Int64 nhead,
                                       TransformerOptions options) {
  CHECK(num_layers > 0, "TransformerEncoder: ", num_layers, " layers, expected at least 1");
  for (int64_t i = 0; i < num_layers; ++i)
    layers.push_back(std::make_shared<TransformerEncoderLayer>(d_model, nhead, options));
  register_module("layers", layers);
}

Tensor TransformerEncoder::forward(const Tensor& x, const Tensor& mask,
                                   const Tensor& src_key_padding_mask) {
  Tensor y = x;
  for (size_t i = 0; i < layers.size(); ++i)
    y = layers.at<TransformerEncoderLayer>(i)(y, mask, src_key_padding_mask);
  return y;
}

Tensor generate_square_subsequent_mask(Int64 size, TensorOptions options) {
  const Tensor allowed = tril(ones({size, size}, {DType::Bool, options.device}));
  return where(allowed, zeros({size, size}, options), -INFINITY);
}

}  // namespace ringgrad::nn
