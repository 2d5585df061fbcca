// All layers: those of a convolutional network (basic_layers.h), and the others, likewise modules
// with parameters where they need some, under PyTorch's names and with PyTorch's initial values.
#pragma once

#include "ringgrad/nn/activations.h"
#include "ringgrad/nn/basic_layers.h"

namespace ringgrad::nn {

// ---- convolutions -------------------------------------------------------------------------------
struct Conv1dOptions {
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

// The same along one dimension: x [N, in_channels, L] → [N, out_channels, P].
class Conv1d : public Module {
 public:
  Conv1d(Int64 in_channels, Int64 out_channels, Int64 kernel, Conv1dOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  // [out, in/groups, R], [out] or undefined
  Parameter weight;
  Parameter bias;

 private:
  ringgrad::Conv1dOptions options_;
};

// The same around conv_transpose2d(); output_padding: which of the sizes that a convolution maps to
// x's is meant.
struct ConvTranspose2dOptions {
  [[no_unique_address]] OnlyByName only_by_name = OnlyByName();
  Pair stride = 1;
  Pair padding = 0;
  Pair output_padding = 0;
  Pair dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

// x [N, in_channels, P, Q] → [N, out_channels, H, W].
class ConvTranspose2d : public Module {
 public:
  ConvTranspose2d(Int64 in_channels, Int64 out_channels, Pair kernel,
                  ConvTranspose2dOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  // [in, out/groups, R, S], [out] or undefined
  Parameter weight;
  Parameter bias;

 private:
  ringgrad::ConvTranspose2dOptions options_;
};

// ---- normalisation ------------------------------------------------------------------------------
using BatchNorm1dOptions = BatchNorm2dOptions;
class BatchNorm1d : public BatchNorm {  // x [N, features] or [N, features, L]
 public:
  explicit BatchNorm1d(Int64 features, BatchNorm1dOptions options = {})
      : BatchNorm("BatchNorm1d", features, options) {}

 private:
  void check_shape(const Tensor& x) const override;
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool affine = true;  // weight and bias
  bool bias = true;    // and not the weight alone
};

// Normalises over the last dimensions of x, which have `normalized_shape` (Ba et al. 2016).
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const Shape& normalized_shape, LayerNormOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  // of the normalized shape, or undefined
  Parameter weight;
  Parameter bias;

 private:
  Shape normalized_shape_;
  double eps_;
};

using GroupNormOptions = LayerNormOptions;

// Normalises the channels of each of `groups` groups, and all that follows them (Wu & He 2018): x
// [N, channels, …].
class GroupNorm : public Module {
 public:
  GroupNorm(Int64 groups, Int64 channels, GroupNormOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  // [channels] or undefined
  Parameter weight;
  Parameter bias;

 private:
  int64_t groups_;
  int64_t channels_;
  double eps_;
};

// ---- pooling ------------------------------------------------------------------------------------
// MaxPool2d pool{{.kernel = 3, .stride = 2, .padding = 1}}, or just MaxPool2d pool{2}.
template <Tensor (*pool)(const Tensor& x, const Pool2dOptions& options)>
class Pool2d : public Module {
 public:
  explicit Pool2d(Pair kernel) : options_{.kernel = kernel} {}
  explicit Pool2d(const Pool2dOptions& options) : options_(options) {}
  Tensor forward(const Tensor& x) override { return pool(x, options_); }

 protected:
  Pool2dOptions options_;
};
class MaxPool2d : public Pool2d<max_pool2d> {
 public:
  using Pool2d::Pool2d;
  std::string extra_repr() const override;
};
class AvgPool2d : public Pool2d<avg_pool2d> {
 public:
  using Pool2d::Pool2d;
  std::string extra_repr() const override;
};

class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(Pair output_size) : output_size_(output_size) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, output_size_); }
  std::string extra_repr() const override;

 private:
  Pair output_size_;
};

// The size that images get, or how many times as large they become, where that is a whole number of
// pixels.
struct UpsampleOptions {
  [[no_unique_address]] OnlyByName only_by_name = OnlyByName();
  Pair size = 0;
  double scale_factor = 0;
  UpsampleMode mode = UpsampleMode::Nearest;
  bool align_corners = false;  // of bilinear
};

// x [N, C, H, W] → [N, C, P, Q]: Upsample up{{.scale_factor = 2}}.
class Upsample : public Module {
 public:
  explicit Upsample(UpsampleOptions options);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  UpsampleOptions options_;
};

// ---- words --------------------------------------------------------------------------------------
struct EmbeddingOptions {
  std::optional<int64_t> padding_idx = {};  // this row begins as 0 and gets no gradient
};

// A row of weight for each index: x int64 [...], y [..., embedding_dim]. Throws IndexError as
// embedding().
class Embedding : public Module {
 public:
  // Values as normal(0, 1).
  Embedding(Int64 num_embeddings, Int64 embedding_dim, EmbeddingOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  Parameter weight;  // [num_embeddings, embedding_dim]

 private:
  std::optional<int64_t> padding_idx_;
};

// ---- dropout, and modules that change no value --------------------------------------------------
// Zeroes elements with probability p in training, and is the identity in evaluation (Srivastava et
// al. 2014).
class Dropout : public Module {
 public:
  explicit Dropout(Real p = 0.5) : p_(p) {}
  Tensor forward(const Tensor& x) override { return dropout(x, p_, is_training()); }
  std::string extra_repr() const override;

 protected:
  double p_;
};

// The same of whole channels: x [N, C, …] (Tompson et al. 2015).
class Dropout2d : public Dropout {
 public:
  using Dropout::Dropout;
  Tensor forward(const Tensor& x) override { return dropout2d(x, p_, is_training()); }
};

// Dimensions start_dim … end_dim become one: by default all but the batch.
class Flatten : public Module {
 public:
  explicit Flatten(Int start_dim = 1, Int end_dim = -1)
      : start_dim_(start_dim), end_dim_(end_dim) {}
  Tensor forward(const Tensor& x) override { return flatten(x, start_dim_, end_dim_); }
  std::string extra_repr() const override;

 private:
  int start_dim_;
  int end_dim_;
};

class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
};

}  // namespace ringgrad::nn
