#include "ringgrad/models/resnet.h"

#include "ringgrad/core/error.h"
#include "ringgrad/models/residual_parts.h"

namespace ringgrad::models {
namespace {

// No convolution here has a bias, because the batch norm after it would cancel it.
nn::Conv2d conv1x1(int64_t in_channels, int64_t out_channels) {
  return nn::Conv2d(in_channels, out_channels, 1, {.bias = false});
}

}  // namespace

Bottleneck::Bottleneck(int64_t in_channels, int64_t channels, int64_t stride)
    : conv1_(conv1x1(in_channels, channels)),
      bn1_(channels),
      conv2_(conv3x3(channels, channels, stride)),
      bn2_(channels),
      conv3_(conv1x1(channels, kExpansion * channels)),
      bn3_(kExpansion * channels) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  register_module("conv2", conv2_);
  register_module("bn2", bn2_);
  register_module("conv3", conv3_);
  register_module("bn3", bn3_);
  if (stride == 1 && in_channels == kExpansion * channels) return;
  add_projection(downsample_, in_channels, kExpansion * channels, stride);
  register_module("downsample", downsample_);
}

Tensor Bottleneck::forward(const Tensor& x) {
  Tensor y = nn::conv_batch_norm(conv1_, bn1_, x, {.activation = Activation::Relu});
  y = nn::conv_batch_norm(conv2_, bn2_, y, {.activation = Activation::Relu});
  return nn::conv_batch_norm(conv3_, bn3_, y,
                             {.activation = Activation::Relu, .residual = downsample_(x)});
}

namespace {

struct Plan {
  int depth;
  bool bottleneck;
  int blocks[4];
};
constexpr Plan kPlans[] = {{18, false, {2, 2, 2, 2}},
                           {34, false, {3, 4, 6, 3}},
                           {50, true, {3, 4, 6, 3}},
                           {101, true, {3, 4, 23, 3}},
                           {152, true, {3, 8, 36, 3}}};

const Plan& plan_of(int depth) {
  for (const Plan& plan : kPlans)
    if (plan.depth == depth) return plan;
  throw Error(str("ResNet: depth ", depth, ", expected 18, 34, 50, 101 or 152"));
}

nn::Conv2d make_stem(const ResNetOptions& options) {
  if (options.stem == Stem::Cifar) return conv3x3(options.in_channels, 64);
  return nn::Conv2d(options.in_channels, 64, 7, {.stride = 2, .padding = 3, .bias = false});
}

}  // namespace

ResNet::ResNet(int depth, ResNetOptions options)
    : stem_(options.stem),
      conv1_(make_stem(options)),
      bn1_(64),
      fc_(512 * (plan_of(depth).bottleneck ? Bottleneck::kExpansion : BasicBlock::kExpansion),
          options.num_classes) {
  const Plan& plan = plan_of(depth);
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  if (plan.bottleneck)
    add_blocks<Bottleneck>(layers_, plan.blocks, 64);
  else
    add_blocks<BasicBlock>(layers_, plan.blocks, 64);
  for (int i = 0; i < 4; ++i) register_module("layer" + std::to_string(i + 1), layers_[i]);
  register_module("fc", fc_);
  init_convolutions(*this);
}

Tensor ResNet::forward(const Tensor& x) {
  Tensor y = nn::conv_batch_norm(conv1_, bn1_, x, {.activation = Activation::Relu});
  if (stem_ == Stem::ImageNet) y = max_pool2d(y, {.kernel = 3, .stride = 2, .padding = 1});
  for (nn::Sequential& layer : layers_) y = layer(y);
  return fc_(flatten(adaptive_avg_pool2d(y, 1), 1));
}

}  // namespace ringgrad::models
