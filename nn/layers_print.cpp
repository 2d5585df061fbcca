// What stands between the parentheses when a layer is printed, in PyTorch's words.
#include "ringgrad/nn/layer_parts.h"
#include "ringgrad/nn/layers.h"

namespace ringgrad::nn {
std::string Linear::extra_repr() const {
  return "in_features=" + std::to_string(weight.size(1)) +
         ", out_features=" + std::to_string(weight.size(0)) + ", bias=" + text(bias.defined());
}

std::string Conv2d::extra_repr() const {
  return convolution(weight.size(1) * options_.groups, weight.size(0),
                     Pair(weight.size(2), weight.size(3)), options_, 0, bias.defined());
}

std::string BatchNorm::extra_repr() const {
  return std::to_string(features_) + ", eps=" + text(options_.eps) +
         ", momentum=" + text(options_.momentum) + ", affine=" + text(options_.affine) +
         ", bias=" + text(bias.defined()) +
         ", track_running_stats=" + text(options_.track_running_stats);
}

std::string MaxPool2d::extra_repr() const {
  return window(options_) + ", dilation=1, ceil_mode=False";
}

std::string AvgPool2d::extra_repr() const { return window(options_); }

std::string AdaptiveAvgPool2d::extra_repr() const { return "output_size=" + text(output_size_); }

std::string Dropout::extra_repr() const { return "p=" + text(p_) + ", inplace=False"; }

std::string Flatten::extra_repr() const {
  return "start_dim=" + std::to_string(start_dim_) + ", end_dim=" + std::to_string(end_dim_);
}

}  // namespace ringgrad::nn
