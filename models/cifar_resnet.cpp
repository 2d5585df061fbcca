#include "ringgrad/core/base/check.h"
#include "ringgrad/models/residual_parts.h"
#include "ringgrad/nn/classifier_init.h"

namespace ringgrad::models {

nn::Conv2d conv3x3(int64_t in_channels, int64_t out_channels, int64_t stride) {
  return nn::Conv2d(in_channels, out_channels, 3, {.stride = stride, .padding = 1, .bias = false});
}

void add_projection(nn::Sequential& downsample, int64_t in_channels, int64_t out_channels,
                    int64_t stride) {
  downsample.push_back(std::make_shared<nn::Conv2d>(
      in_channels, out_channels, 1, nn::Conv2dOptions{.stride = stride, .bias = false}));
  downsample.push_back(std::make_shared<nn::BatchNorm2d>(out_channels));
}

void init_convolutions(nn::Module& network) {
  for (const auto& [name, module] : network.named_modules())
    if (const auto* conv = dynamic_cast<nn::Conv2d*>(module))
      nn::init::kaiming_normal_(conv->weight, {.mode = nn::init::FanMode::FanOut});
}

BasicBlock::BasicBlock(int64_t in_channels, int64_t channels, int64_t stride, Shortcut shortcut)
    : conv1_(conv3x3(in_channels, channels, stride)),
      bn1_(channels),
      conv2_(conv3x3(channels, channels)),
      bn2_(channels),
      stride_(stride),
      padding_((channels - in_channels) / 2) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  register_module("conv2", conv2_);
  register_module("bn2", bn2_);
  if (stride == 1 && in_channels == channels) return;
  if (shortcut == Shortcut::Projection) {
    add_projection(downsample_, in_channels, channels, stride);
    register_module("downsample", downsample_);
  } else {
    CHECK(channels >= in_channels && (channels - in_channels) % 2 == 0, "BasicBlock: from ",
          in_channels, " to ", channels, " channels by padding, expected an even number more");
  }
}

Tensor BasicBlock::forward(const Tensor& x) {
  const Tensor y = nn::conv_batch_norm(conv1_, bn1_, x, {.activation = Activation::Relu});
  Tensor shortcut = x;
  if (downsample_.size() > 0) {
    shortcut = downsample_(x);
  } else {
    // Takes every stride-th pixel.
    if (stride_ > 1) shortcut = avg_pool2d(x, {.kernel = 1, .stride = stride_});
    if (padding_ > 0) shortcut = pad(shortcut, {0, 0, 0, 0, padding_, padding_});
  }
  return nn::conv_batch_norm(conv2_, bn2_, y,
                             {.activation = Activation::Relu, .residual = shortcut});
}

CifarResNet::CifarResNet(int depth, CifarResNetOptions options)
    : conv1_(conv3x3(options.in_channels, 16)), bn1_(16), fc_(64, options.num_classes) {
  CHECK(depth >= 8 && depth % 6 == 2, "CifarResNet: depth ", depth,
        ", expected 6n + 2: 20, 32, 44, 56, 110");
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  const int n = (depth - 2) / 6;
  const int blocks[] = {n, n, n};
  add_blocks<BasicBlock>(layers_, blocks, 16, options.shortcut);
  for (int i = 0; i < 3; ++i) register_module(str("layer", i + 1), layers_[i]);
  register_module("fc", fc_);
  init_convolutions(*this);
}

Tensor CifarResNet::forward(const Tensor& x) {
  Tensor y = nn::conv_batch_norm(conv1_, bn1_, x, {.activation = Activation::Relu});
  for (nn::Sequential& layer : layers_) y = layer(y);
  return fc_(flatten(adaptive_avg_pool2d(y, 1), 1));
}

}  // namespace ringgrad::models
