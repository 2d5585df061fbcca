#include "ringgrad/models/resnet.h"

#include "ringgrad/autograd/ops/pool.h"
#include "ringgrad/autograd/ops/view.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad::models {
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

}  // namespace ringgrad::models
