// What stands between the parentheses when a layer is printed, in PyTorch's words.
#include <charconv>

#include "ringgrad/nn/layers.h"

namespace ringgrad::nn {
namespace {

std::string text(bool value) { return value ? "True" : "False"; }

// The shortest decimals that read back as the same number: 1e-05, 0.1, 1.0.
std::string text(double value) {
  char digits[32];
  std::string number(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  return number.find_first_of(".en") == std::string::npos ? number + ".0" : number;
}

std::string tuple(Pair pair) {
  return "(" + std::to_string(pair.h) + ", " + std::to_string(pair.w) + ")";
}
std::string text(Pair pair) { return pair.h == pair.w ? std::to_string(pair.h) : tuple(pair); }

std::string tuple(int64_t number) { return "(" + std::to_string(number) + ",)"; }

// Of all kinds of convolution: only what is not the default, but for kernel and stride.
template <class Numbers, class Options>
std::string convolution(int64_t in, int64_t out, Numbers kernel, const Options& o,
                        Pair output_padding, bool bias) {
  std::string all = std::to_string(in) + ", " + std::to_string(out) +
                    ", kernel_size=" + tuple(kernel) + ", stride=" + tuple(o.stride);
  if (o.padding != Numbers(0)) all += ", padding=" + tuple(o.padding);
  if (o.dilation != Numbers(1)) all += ", dilation=" + tuple(o.dilation);
  if (output_padding != Pair(0)) all += ", output_padding=" + tuple(output_padding);
  if (o.groups != 1) all += ", groups=" + std::to_string(o.groups);
  return all + (bias ? "" : ", bias=False");
}

std::string window(const Pool2dOptions& o) {
  return "kernel_size=" + text(o.kernel) +
         ", stride=" + text(o.stride == Pair(0) ? o.kernel : o.stride) +
         ", padding=" + text(o.padding);
}

}  // namespace

std::string Linear::extra_repr() const {
  return "in_features=" + std::to_string(weight.size(1)) +
         ", out_features=" + std::to_string(weight.size(0)) + ", bias=" + text(bias.defined());
}

std::string Conv2d::extra_repr() const {
  return convolution(weight.size(1) * options_.groups, weight.size(0),
                     Pair(weight.size(2), weight.size(3)), options_, 0, bias.defined());
}

std::string Conv1d::extra_repr() const {
  return convolution(weight.size(1) * options_.groups, weight.size(0), weight.size(2), options_, 0,
                     bias.defined());
}

std::string ConvTranspose2d::extra_repr() const {
  return convolution(weight.size(0), weight.size(1) * options_.groups,
                     Pair(weight.size(2), weight.size(3)), options_, options_.output_padding,
                     bias.defined());
}

std::string BatchNorm::extra_repr() const {
  return std::to_string(features_) + ", eps=" + text(options_.eps) +
         ", momentum=" + text(options_.momentum) + ", affine=" + text(options_.affine) +
         ", bias=" + text(bias.defined()) +
         ", track_running_stats=" + text(options_.track_running_stats);
}

std::string LayerNorm::extra_repr() const {
  std::string sizes;
  for (const int64_t size : normalized_shape_)
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  if (normalized_shape_.dim() == 1) sizes += ",";
  return "(" + sizes + "), eps=" + text(eps_) + ", elementwise_affine=" + text(weight.defined()) +
         ", bias=" + text(bias.defined());
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

std::string ELU::extra_repr() const { return "alpha=" + text(alpha_); }
std::string PReLU::extra_repr() const { return "num_parameters=" + std::to_string(weight.numel()); }
std::string LeakyReLU::extra_repr() const { return "negative_slope=" + text(slope_); }
std::string MaxPool2d::extra_repr() const {
  return window(options_) + ", dilation=1, ceil_mode=False";
}
std::string AvgPool2d::extra_repr() const { return window(options_); }
std::string AdaptiveAvgPool2d::extra_repr() const { return "output_size=" + text(output_size_); }
std::string Dropout::extra_repr() const { return "p=" + text(p_) + ", inplace=False"; }
std::string Flatten::extra_repr() const {
  return "start_dim=" + std::to_string(start_dim_) + ", end_dim=" + std::to_string(end_dim_);
}
std::string Embedding::extra_repr() const {
  return std::to_string(weight.size(0)) + ", " + std::to_string(weight.size(1)) +
         (padding_idx_ ? ", padding_idx=" + std::to_string(*padding_idx_) : "");
}

}  // namespace ringgrad::nn
