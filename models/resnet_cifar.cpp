#include "ringgrad/models/resnet_cifar.h"

#include "ringgrad/autograd/ops/pool.h"
#include "ringgrad/autograd/ops/view.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad::models {

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
