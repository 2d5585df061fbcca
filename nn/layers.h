// All layers: those of a convolutional network (basic_layers.h), and the others. They have
// PyTorch's names and initial values.
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

// A convolution along one dimension: x [N, in_channels, L] → [N, out_channels, P].
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

// The options of conv_transpose2d(), and bias. output_padding selects one of the sizes that a
// convolution maps to x's size.
struct ConvTranspose2dOptions {
  OnlyByName only_by_name = OnlyByName();
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
  bool affine = true;  // a weight and a bias
  bool bias = true;    // false: a weight without a bias
};

// Normalises over the last dimensions of x, whose sizes are `normalized_shape` (Ba et al. 2016).
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const Shape& normalized_shape, LayerNormOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  // the normalized shape, or undefined
  Parameter weight;
  Parameter bias;

 private:
  Shape normalized_shape_;
  double eps_;
};

using GroupNormOptions = LayerNormOptions;

// Normalises the channels of each of `groups` groups over all later dimensions (Wu & He 2018). x is
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

struct InstanceNormOptions {
  double eps = 1e-5;
  bool affine = false;
};

// Normalises each channel of each sample (Ulyanov et al. 2016), in evaluation, too.
class InstanceNorm : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  Parameter weight, bias;  // [features] or undefined

 protected:
  InstanceNorm(const char* name, int64_t features, int dims, InstanceNormOptions options);

 private:
  const char* name_;
  int64_t features_;
  int dims_;
  InstanceNormOptions options_;
};
class InstanceNorm1d : public InstanceNorm {  // x [N, features, L]
 public:
  explicit InstanceNorm1d(Int64 features, InstanceNormOptions options = {})
      : InstanceNorm("InstanceNorm1d", features, 3, options) {}
};
class InstanceNorm2d : public InstanceNorm {  // x [N, features, H, W]
 public:
  explicit InstanceNorm2d(Int64 features, InstanceNormOptions options = {})
      : InstanceNorm("InstanceNorm2d", features, 4, options) {}
};

// ---- borders ------------------------------------------------------------------------------------
// These call pad() with one width for all sides, or {left, right, top, bottom}. Negative widths
// remove elements.
class Border : public Module {
 public:
  Tensor forward(const Tensor& x) override { return pad(x, widths_, mode_, value_); }
  std::string extra_repr() const override;

 protected:
  Border(const char* name, int dims, std::vector<int64_t> widths, PadMode mode, double value = 0);
  double value_;

 private:
  std::vector<int64_t> widths_;
  PadMode mode_;
};
class ConstantBorder : public Border {
 public:
  std::string extra_repr() const override;

 protected:
  ConstantBorder(const char* name, int dims, std::vector<int64_t> widths, double value)
      : Border(name, dims, std::move(widths), PadMode::Constant, value) {}
};
#define RINGGRAD_BORDER(NAME, DIMS, MODE)                                                        \
  class NAME : public Border {                                                                   \
   public:                                                                                       \
    explicit NAME(Int64 all) : NAME(std::vector<int64_t>(2 * DIMS, all)) {}                      \
    explicit NAME(std::vector<int64_t> widths) : Border(#NAME, DIMS, std::move(widths), MODE) {} \
  };
RINGGRAD_BORDER(ReflectionPad1d, 1, PadMode::Reflect)
RINGGRAD_BORDER(ReflectionPad2d, 2, PadMode::Reflect)
RINGGRAD_BORDER(ReplicationPad1d, 1, PadMode::Replicate)
RINGGRAD_BORDER(ReplicationPad2d, 2, PadMode::Replicate)
RINGGRAD_BORDER(CircularPad1d, 1, PadMode::Circular)
RINGGRAD_BORDER(CircularPad2d, 2, PadMode::Circular)
RINGGRAD_BORDER(ZeroPad1d, 1, PadMode::Constant)
RINGGRAD_BORDER(ZeroPad2d, 2, PadMode::Constant)
#undef RINGGRAD_BORDER
class ConstantPad1d : public ConstantBorder {
 public:
  ConstantPad1d(Int64 all, Real value) : ConstantPad1d(std::vector<int64_t>(2, all), value) {}
  ConstantPad1d(std::vector<int64_t> widths, Real value)
      : ConstantBorder("ConstantPad1d", 1, std::move(widths), value) {}
};
class ConstantPad2d : public ConstantBorder {
 public:
  ConstantPad2d(Int64 all, Real value) : ConstantPad2d(std::vector<int64_t>(4, all), value) {}
  ConstantPad2d(std::vector<int64_t> widths, Real value)
      : ConstantBorder("ConstantPad2d", 2, std::move(widths), value) {}
};

// ---- arrangements of images ---------------------------------------------------------------------
class PixelShuffle : public Module {
 public:
  explicit PixelShuffle(Int64 upscale_factor) : r_(upscale_factor) {}
  Tensor forward(const Tensor& x) override { return pixel_shuffle(x, r_); }
  std::string extra_repr() const override;

 private:
  int64_t r_;
};
class PixelUnshuffle : public Module {
 public:
  explicit PixelUnshuffle(Int64 downscale_factor) : r_(downscale_factor) {}
  Tensor forward(const Tensor& x) override { return pixel_unshuffle(x, r_); }
  std::string extra_repr() const override;

 private:
  int64_t r_;
};
class Unfold : public Module {
 public:
  explicit Unfold(const UnfoldOptions& options) : options_(options) {}
  Tensor forward(const Tensor& x) override { return unfold(x, options_); }
  std::string extra_repr() const override;

 private:
  UnfoldOptions options_;
};

// ---- pooling ------------------------------------------------------------------------------------
// The fields of geometry.h's struct, and ceil_mode: see max_pool2d() in autograd/ops.h.
struct Pool2dOptions {
  OnlyByName only_by_name = OnlyByName();
  Pair kernel = 2;
  Pair stride = 0;            // 0: the kernel size
  Pair padding = 0;           // at most half the kernel
  bool count_padding = true;  // for AvgPool2d: padding counts in the divisor
  bool ceil_mode = false;
};

// MaxPool2d pool{{.kernel = 3, .stride = 2, .padding = 1}}, or just MaxPool2d pool{2}. x is [N, C,
// H, W], or lacks N.
class Pool2d : public Module {
 public:
  explicit Pool2d(Pair kernel) : options_{.kernel = kernel} {}
  explicit Pool2d(const Pool2dOptions& options) : options_(options) {}

 protected:
  Pool2dOptions options_;
};
class MaxPool2d : public Pool2d {
 public:
  using Pool2d::Pool2d;
  Tensor forward(const Tensor& x) override {
    return max_pool2d(x, options_.kernel, options_.stride, options_.padding, 1, options_.ceil_mode);
  }
  std::string extra_repr() const override;
};
class AvgPool2d : public Pool2d {
 public:
  using Pool2d::Pool2d;
  Tensor forward(const Tensor& x) override {
    return avg_pool2d(x, options_.kernel, options_.stride, options_.padding, options_.ceil_mode,
                      options_.count_padding);
  }
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

// The new size of images, or the factor by which they grow. The product must be a whole number of
// pixels.
struct UpsampleOptions {
  OnlyByName only_by_name = OnlyByName();
  Pair size = 0;
  double scale_factor = 0;
  UpsampleMode mode = UpsampleMode::Nearest;
  bool align_corners = false;  // for bilinear
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
  std::optional<int64_t> padding_idx = {};  // this row begins as 0 and receives no gradient
};

// Returns a row of weight for each index: x int64 [...], y [..., embedding_dim]. Throws IndexError
// like embedding().
class Embedding : public Module {
 public:
  // The initial values are normal(0, 1).
  Embedding(Int64 num_embeddings, Int64 embedding_dim, EmbeddingOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  Parameter weight;  // [num_embeddings, embedding_dim]

 private:
  std::optional<int64_t> padding_idx_;
};

// ---- dropout, and modules that change no value --------------------------------------------------
// Zeroes elements with probability p in training; in evaluation it is the identity (Srivastava et
// al. 2014).
class Dropout : public Module {
 public:
  explicit Dropout(Real p = 0.5) : p_(p) {}
  Tensor forward(const Tensor& x) override { return dropout(x, p_, is_training()); }
  std::string extra_repr() const override;

 protected:
  double p_;
};

// Zeroes whole channels of x [N, C, …] (Tompson et al. 2015).
class Dropout2d : public Dropout {
 public:
  using Dropout::Dropout;
  Tensor forward(const Tensor& x) override { return dropout2d(x, p_, is_training()); }
};

// The same under PyTorch's other names: for x [N, C, L] and x [N, C, D, H, W].
class Dropout1d : public Dropout2d {
  using Dropout2d::Dropout2d;
};
class Dropout3d : public Dropout2d {
  using Dropout2d::Dropout2d;
};
class AlphaDropout : public Dropout {
 public:
  using Dropout::Dropout;
  Tensor forward(const Tensor& x) override { return alpha_dropout(x, p_, is_training()); }
};

// Splits dimension dim into several of these sizes. One size may be -1; it is derived from the
// others.
class Unflatten : public Module {
 public:
  Unflatten(Int dim, const Shape& sizes) : dim_(dim), sizes_(sizes) {}
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  int dim_;
  Shape sizes_;
};

// Joins dimensions start_dim … end_dim into one; by default all but the batch.
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
