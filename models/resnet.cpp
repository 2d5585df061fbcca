#include "ringgrad/models/resnet.h"

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/nn/init.h"

namespace ringgrad::models {

namespace {

constexpr nn::Conv2dOptions kUnbiased{.bias = false};

void add_projection(nn::Sequential& downsample, int64_t in_channels, int64_t out_channels, int64_t stride) {
  downsample.push_back(
      std::make_shared<nn::Conv2d>(in_channels, out_channels, 1, nn::Conv2dOptions{.stride = stride, .bias = false}));
  downsample.push_back(std::make_shared<nn::BatchNorm2d>(out_channels));
}

}  // namespace

BasicBlock::BasicBlock(int64_t in_channels, int64_t channels, int64_t stride, Shortcut shortcut)
    : conv1_(in_channels, channels, 3, {.stride = stride, .padding = 1, .bias = false}),
      bn1_(channels),
      conv2_(channels, channels, 3, {.padding = 1, .bias = false}),
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
    CHECK(channels >= in_channels && (channels - in_channels) % 2 == 0, "BasicBlock: from ", in_channels, " to ",
          channels, " channels by padding, expected an even number more");
  }
}

Tensor BasicBlock::forward(const Tensor& x) {
  const Tensor y = bn1_(conv1_(x), {.activation = Activation::Relu});
  Tensor shortcut = x;
  if (downsample_.size() > 0) {
    shortcut = downsample_(x);
  } else {
    if (stride_ > 1) shortcut = avg_pool2d(x, {.kernel = 1, .stride = stride_});  // every stride-th pixel
    if (padding_ > 0) shortcut = pad(shortcut, {0, 0, 0, 0, padding_, padding_});
  }
  return bn2_(conv2_(y), {.activation = Activation::Relu, .residual = shortcut});
}

Bottleneck::Bottleneck(int64_t in_channels, int64_t channels, int64_t stride)
    : conv1_(in_channels, channels, 1, kUnbiased),
      bn1_(channels),
      conv2_(channels, channels, 3, {.stride = stride, .padding = 1, .bias = false}),
      bn2_(channels),
      conv3_(channels, kExpansion * channels, 1, kUnbiased),
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
  Tensor y = bn1_(conv1_(x), {.activation = Activation::Relu});
  y = bn2_(conv2_(y), {.activation = Activation::Relu});
  return bn3_(conv3_(y), {.activation = Activation::Relu, .residual = downsample_(x)});
}

void init_residual_network(nn::Module& network) {
  for (const auto& [name, module] : network.named_modules())
    if (const auto* conv = dynamic_cast<nn::Conv2d*>(module))
      nn::init::kaiming_normal_(conv->weight, {.mode = nn::init::FanMode::FanOut});
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
  if (options.stem == Stem::Cifar) return nn::Conv2d(options.in_channels, 64, 3, {.padding = 1, .bias = false});
  return nn::Conv2d(options.in_channels, 64, 7, {.stride = 2, .padding = 3, .bias = false});
}

}  // namespace

ResNet::ResNet(int depth, ResNetOptions options)
    : stem_(options.stem),
      conv1_(make_stem(options)),
      bn1_(64),
      fc_(512 * (plan_of(depth).bottleneck ? Bottleneck::kExpansion : BasicBlock::kExpansion), options.num_classes) {
  const Plan& plan = plan_of(depth);
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  if (plan.bottleneck)
    add_layers<Bottleneck>(plan.blocks);
  else
    add_layers<BasicBlock>(plan.blocks);
  register_module("fc", fc_);
  init_residual_network(*this);
}

template <class Block>
void ResNet::add_layers(const int (&blocks)[4]) {
  int64_t in_channels = 64;
  for (int i = 0; i < 4; ++i) {
    const int64_t channels = 64 << i;
    for (int b = 0; b < blocks[i]; ++b) {
      layers_[i].push_back(std::make_shared<Block>(in_channels, channels, b == 0 && i > 0 ? 2 : 1));
      in_channels = channels * Block::kExpansion;
    }
    register_module("layer" + std::to_string(i + 1), layers_[i]);
  }
}

Tensor ResNet::forward(const Tensor& x) {
  Tensor y = bn1_(conv1_(x), {.activation = Activation::Relu});
  if (stem_ == Stem::ImageNet) y = max_pool2d(y, {.kernel = 3, .stride = 2, .padding = 1});
  for (nn::Sequential& layer : layers_) y = layer(y);
  return fc_(flatten(adaptive_avg_pool2d(y, 1), 1));
}

CifarResNet::CifarResNet(int depth, CifarResNetOptions options)
    : conv1_(options.in_channels, 16, 3, {.padding = 1, .bias = false}), bn1_(16), fc_(64, options.num_classes) {
  CHECK(depth >= 8 && depth % 6 == 2, "CifarResNet: depth ", depth, ", expected 6n + 2: 20, 32, 44, 56, 110");
  const int n = (depth - 2) / 6;
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  add_blocks(layer1_, n, 16, 16, options.shortcut);
  register_module("layer1", layer1_);
  add_blocks(layer2_, n, 16, 32, options.shortcut);
  register_module("layer2", layer2_);
  add_blocks(layer3_, n, 32, 64, options.shortcut);
  register_module("layer3", layer3_);
  register_module("fc", fc_);
  init_residual_network(*this);
}

void CifarResNet::add_blocks(nn::Sequential& layer, int count, int64_t in_channels, int64_t channels,
                             Shortcut shortcut) {
  layer.push_back(std::make_shared<BasicBlock>(in_channels, channels, channels / in_channels, shortcut));
  for (int i = 1; i < count; ++i) layer.push_back(std::make_shared<BasicBlock>(channels, channels, 1, shortcut));
}

Tensor CifarResNet::forward(const Tensor& x) {
  const Tensor y = bn1_(conv1_(x), {.activation = Activation::Relu});
  return fc_(flatten(adaptive_avg_pool2d(layer3_(layer2_(layer1_(y))), 1), 1));
}

}  // namespace ringgrad::models
