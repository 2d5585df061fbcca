#include "ringgrad/nn/layers.h"

#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/nn/init.h"
#include "ringgrad/nn/layer_parts.h"

namespace ringgrad::nn {

Conv1d::Conv1d(Int64 in_channels, Int64 out_channels, Int64 kernel, Conv1dOptions options)
    : options_{.stride = options.stride,
               .padding = options.padding,
               .dilation = options.dilation,
               .groups = options.groups} {
  check_sizes("Conv1d", in_channels, out_channels, {1, kernel}, options.groups);
  weight =
      register_parameter("weight", empty({out_channels, in_channels / options.groups, kernel}));
  bias = register_parameter("bias", options.bias ? empty({out_channels}) : Tensor());
  init::layer_default_(weight, bias);
}

Tensor Conv1d::forward(const Tensor& x) { return conv1d(x, weight, bias, options_); }

ConvTranspose2d::ConvTranspose2d(Int64 in_channels, Int64 out_channels, Pair kernel,
                                 ConvTranspose2dOptions options)
    : options_{.stride = options.stride,
               .padding = options.padding,
               .output_padding = options.output_padding,
               .dilation = options.dilation,
               .groups = options.groups} {
  check_sizes("ConvTranspose2d", in_channels, out_channels, kernel, options.groups);
  weight = register_parameter(
      "weight", empty({in_channels, out_channels / options.groups, kernel.h, kernel.w}));
  bias = register_parameter("bias", options.bias ? empty({out_channels}) : Tensor());
  init::layer_default_(weight, bias);
}

Tensor ConvTranspose2d::forward(const Tensor& x) {
  return conv_transpose2d(x, weight, bias, options_);
}

LayerNorm::LayerNorm(const Shape& normalized_shape, LayerNormOptions options)
    : normalized_shape_(normalized_shape), eps_(options.eps) {
  weight = register_parameter("weight", options.affine ? ones(normalized_shape) : Tensor());
  bias = register_parameter("bias",
                            options.affine && options.bias ? zeros(normalized_shape) : Tensor());
}

Tensor LayerNorm::forward(const Tensor& x) {
  return layer_norm(x, normalized_shape_, weight, bias, eps_);
}

GroupNorm::GroupNorm(Int64 groups, Int64 channels, GroupNormOptions options)
    : groups_(groups), channels_(channels), eps_(options.eps) {
  CHECK(groups > 0 && channels > 0 && channels % groups == 0, "GroupNorm: ", channels,
        " channels in ", groups, " groups, expected a multiple of the number of groups");
  weight = register_parameter("weight", options.affine ? ones({channels}) : Tensor());
  bias = register_parameter("bias", options.affine && options.bias ? zeros({channels}) : Tensor());
}

Tensor GroupNorm::forward(const Tensor& x) {
  CHECK(x.defined(), "GroupNorm: the input is an undefined tensor, expected [N, C, …]");
  CHECK_AS(ShapeError, x.dim() >= 2 && x.size(1) == channels_, "GroupNorm: the input has shape ",
           x.shape(), ", expected [N, ", channels_, ", …]");
  return group_norm(x, groups_, weight, bias, eps_);
}

PReLU::PReLU(Int64 num_parameters, Real init) {
  CHECK(num_parameters > 0, "PReLU: ", num_parameters, " parameters, expected at least 1");
  weight = register_parameter("weight", full({num_parameters}, init));
}

Tensor PReLU::forward(const Tensor& x) {
  CHECK(x.defined(), "PReLU: the input is an undefined tensor, expected elements");
  const int64_t count = weight.numel();
  const int64_t channels = x.dim() > 1 ? x.size(1) : 1;
  CHECK_AS(ShapeError, count == 1 || count == channels, "PReLU: the input has shape ", x.shape(),
           " with ", channels, " channels, expected ", count);
  Shape each = {count};
  while (each.dim() + 1 < x.dim()) each.push_back(1);
  return prelu(x, reshape(weight, x.dim() == 0 ? Shape() : each));
}

Upsample::Upsample(UpsampleOptions options) : options_(options) {
  CHECK((options.size == Pair(0)) != (options.scale_factor == 0), "Upsample: the size is ",
        options.size, " and the scale factor ", options.scale_factor, ", expected one of the two");
}

Tensor Upsample::forward(const Tensor& x) {
  CHECK(x.defined(), "Upsample: the input is an undefined tensor, expected [N, C, H, W]");
  CHECK_AS(ShapeError, x.dim() == 4, "Upsample: the input has shape ", x.shape(),
           ", expected [N, C, H, W]");
  Pair size = options_.size;
  if (const double scale = options_.scale_factor; scale != 0) {
    const double height = static_cast<double>(x.size(2)) * scale;
    const double width = static_cast<double>(x.size(3)) * scale;
    CHECK_AS(ShapeError, height == std::floor(height) && width == std::floor(width),
             "Upsample: the input ", x.shape(), " times ", scale, " is ", height, "×", width,
             " pixels, expected whole numbers; say the size instead");
    size = {static_cast<int64_t>(height), static_cast<int64_t>(width)};
  }
  return upsample(x, size, {.mode = options_.mode, .align_corners = options_.align_corners});
}

Embedding::Embedding(Int64 num_embeddings, Int64 embedding_dim, EmbeddingOptions options)
    : padding_idx_(options.padding_idx) {
  CHECK(num_embeddings > 0 && embedding_dim > 0, "Embedding: ", num_embeddings, " rows of ",
        embedding_dim, " numbers, expected at least 1");
  weight = register_parameter("weight", empty({num_embeddings, embedding_dim}));
  normal_(weight, 0, 1);
  if (padding_idx_) {
    const int64_t row = *padding_idx_ < 0 ? *padding_idx_ + num_embeddings : *padding_idx_;
    CHECK_AS(IndexError, row >= 0 && row < num_embeddings, "Embedding: padding_idx is ",
             *padding_idx_, ", there are ", num_embeddings, " rows");
    padding_idx_ = row;
    fill_(select(weight.detach(), 0, row), 0);
  }
}

Tensor Embedding::forward(const Tensor& x) { return embedding(x, weight, padding_idx_); }

std::string Conv1d::extra_repr() const {
  return convolution(weight.size(1) * options_.groups, weight.size(0), weight.size(2), options_, 0,
                     bias.defined());
}

std::string ConvTranspose2d::extra_repr() const {
  return convolution(weight.size(0), weight.size(1) * options_.groups,
                     Pair(weight.size(2), weight.size(3)), options_, options_.output_padding,
                     bias.defined());
}

std::string LayerNorm::extra_repr() const {
  std::string sizes;
  for (const int64_t size : normalized_shape_)
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  if (normalized_shape_.dim() == 1) sizes += ",";
  return "(" + sizes + "), eps=" + text(eps_) + ", elementwise_affine=" + text(weight.defined()) +
         ", bias=" + text(bias.defined());
}

InstanceNorm::InstanceNorm(const char* name, int64_t features, int dims,
                           InstanceNormOptions options)
    : name_(name), features_(features), dims_(dims), options_(options) {
  CHECK(features > 0, name, ": ", features, " features, expected at least 1");
  weight = register_parameter("weight", options.affine ? ones({features}) : Tensor());
  bias = register_parameter("bias", options.affine ? zeros({features}) : Tensor());
}

Tensor InstanceNorm::forward(const Tensor& x) {
  CHECK(x.defined(), name_, ": the input is an undefined tensor, expected images");
  CHECK_AS(ShapeError,
           (x.dim() == dims_ || x.dim() == dims_ - 1) && x.size(1 + x.dim() - dims_) == features_,
           name_, ": the input has shape ", x.shape(), ", expected ", features_, " channels in ",
           dims_, " dimensions, or without a batch");
  if (x.dim() == dims_) return instance_norm(x, weight, bias, options_.eps);
  return squeeze(instance_norm(unsqueeze(x, 0), weight, bias, options_.eps), 0);
}

std::string InstanceNorm::extra_repr() const {
  return std::to_string(features_) + ", eps=" + text(options_.eps) +
         ", momentum=0.1, affine=" + text(options_.affine) + ", bias=" + text(options_.affine) +
         ", track_running_stats=False";
}

Border::Border(const char* name, int dims, std::vector<int64_t> widths, PadMode mode, double value)
    : value_(value), widths_(std::move(widths)), mode_(mode) {
  CHECK(static_cast<int>(widths_.size()) == 2 * dims, name, ": there are ", widths_.size(),
        " widths, expected ", 2 * dims, ": before and after, of the last dimension first");
}

std::string Border::extra_repr() const {
  std::string all;
  for (const int64_t width : widths_) all += (all.empty() ? "" : ", ") + std::to_string(width);
  return "(" + all + ")";
}

std::string ConstantBorder::extra_repr() const {
  return "padding=" + Border::extra_repr() + ", value=" + text(value_);
}

std::string PixelShuffle::extra_repr() const { return "upscale_factor=" + std::to_string(r_); }
std::string PixelUnshuffle::extra_repr() const { return "downscale_factor=" + std::to_string(r_); }

std::string Unfold::extra_repr() const {
  return "kernel_size=" + text(options_.kernel) + ", dilation=" + text(options_.dilation) +
         ", padding=" + text(options_.padding) + ", stride=" + text(options_.stride);
}

std::string Unflatten::extra_repr() const {
  std::string sizes;
  for (const int64_t size : sizes_) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  return "dim=" + std::to_string(dim_) + ", unflattened_size=(" + sizes +
         (sizes_.dim() == 1 ? ",)" : ")");
}

Tensor Unflatten::forward(const Tensor& x) {
  CHECK(x.defined(), "Unflatten: the input is an undefined tensor");
  const int dim = normalize_dim("Unflatten", dim_, x.dim());
  int64_t known = 1;
  for (const int64_t size : sizes_) known *= size == -1 ? 1 : size;
  Shape shape;
  for (int d = 0; d < x.dim(); ++d) {
    if (d != dim)
      shape.push_back(x.size(d));
    else
      for (const int64_t size : sizes_)
        shape.push_back(size == -1 && known > 0 ? x.size(d) / known : size);
  }
  return reshape(x, shape);
}

std::string GroupNorm::extra_repr() const {
  return std::to_string(groups_) + ", " + std::to_string(channels_) + ", eps=" + text(eps_) +
         ", affine=" + text(weight.defined()) + ", bias=" + text(bias.defined());
}

std::string Upsample::extra_repr() const {
  const std::string target = options_.scale_factor != 0
                                 ? "scale_factor=" + text(options_.scale_factor)
                                 : "size=" + text(options_.size);
  return target + ", mode='" + (options_.mode == UpsampleMode::Nearest ? "nearest" : "bilinear") +
         "'";
}

std::string number_repr(const char* name, double number) { return name + text(number); }

std::string Softplus::extra_repr() const { return "beta=" + text(beta_) + ", threshold=20.0"; }

std::string Hardtanh::extra_repr() const {
  return "min_val=" + text(min_) + ", max_val=" + text(max_);
}

std::string PReLU::extra_repr() const { return "num_parameters=" + std::to_string(weight.numel()); }

std::string Embedding::extra_repr() const {
  return std::to_string(weight.size(0)) + ", " + std::to_string(weight.size(1)) +
         (padding_idx_ ? ", padding_idx=" + std::to_string(*padding_idx_) : "");
}

void BatchNorm1d::check_shape(const Tensor& x) const {
  CHECK(x.defined(), "BatchNorm1d: the input is an undefined tensor, expected [N, C] or [N, C, L]");
  CHECK_AS(ShapeError, x.dim() == 2 || x.dim() == 3, "BatchNorm1d: the input has shape ", x.shape(),
           ", expected [N, C] or [N, C, L]");
}

static std::string window(const nn::Pool2dOptions& o) {
  return "kernel_size=" + text(o.kernel) +
         ", stride=" + text(o.stride == Pair(0) ? o.kernel : o.stride) +
         ", padding=" + text(o.padding);
}

std::string MaxPool2d::extra_repr() const {
  return window(options_) + ", dilation=1, ceil_mode=" + text(options_.ceil_mode);
}

std::string AvgPool2d::extra_repr() const { return window(options_); }

std::string AdaptiveAvgPool2d::extra_repr() const { return "output_size=" + text(output_size_); }

std::string Dropout::extra_repr() const { return "p=" + text(p_) + ", inplace=False"; }

std::string Flatten::extra_repr() const {
  return "start_dim=" + std::to_string(start_dim_) + ", end_dim=" + std::to_string(end_dim_);
}

}  // namespace ringgrad::nn
