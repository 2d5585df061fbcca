#include "ringgrad/models/residual_block.h"

#include "ringgrad/autograd/ops/pool.h"
#include "ringgrad/autograd/ops/view.h"
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

}  // namespace ringgrad::models
