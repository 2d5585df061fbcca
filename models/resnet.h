// ResNets for ImageNet (He et al. 2015, table 1), with torchvision's names, so that weights are exchanged freely.
//
//   layer   output    ResNet-18  -34    -50    -101   -152
//   conv1   112×112   7×7, 64, stride 2; then 3×3 max pool, stride 2
//   layer1  56×56     2          3      3      3      3      blocks of 64 channels
//   layer2  28×28     2          4      4      4      8                128
//   layer3  14×14     2          6      6      23     36               256
//   layer4  7×7       2          3      3      3      3                512
//   fc      1×1       average, linear
//
// -18 and -34 are made of BasicBlocks, the others of Bottlenecks, whose outputs have four times as many channels.
#pragma once

#include "ringgrad/models/residual_block.h"
#include "ringgrad/nn/linear.h"

namespace ringgrad::models {

enum class Stem {
  ImageNet,
  Cifar,  // a 3×3 convolution of stride 1 and no pool, for images of some 32×32 pixels
};

struct ResNetOptions {
  int64_t in_channels = 3, num_classes = 1000;
  Stem stem = Stem::ImageNet;
};

// ResNet-18 has 11,173,962 parameters for CIFAR-10, ResNet-50 25,557,032 for ImageNet.
class ResNet : public nn::Module {
 public:
  explicit ResNet(int depth, ResNetOptions options = {});  // 18, 34, 50, 101 or 152
  Tensor forward(const Tensor& x) override;                // [N, in_channels, H, W] → [N, num_classes]

 private:
  template <class Block>
  void add_layers(const int (&blocks)[4]);

  Stem stem_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Sequential layers_[4];
  nn::Linear fc_;
};

}  // namespace ringgrad::models
