// Residual networks for ImageNet (He, Zhang, Ren & Sun 2015, table 1). Parameters have
// torchvision's names, so weights can be exchanged. cifar_resnet.h has the slim networks.
#pragma once

#include "ringgrad/models/cifar_resnet.h"

namespace ringgrad::models {

// A 1×1 convolution down to `channels`, a 3×3 one with the stride (torchvision's choice, "v1.5"),
// and a 1×1 one up to four times as many.
class Bottleneck : public nn::Module {
 public:
  static constexpr int64_t kExpansion = 4;
  Bottleneck(int64_t in_channels, int64_t channels, int64_t stride);
  Tensor forward(const Tensor& x) override;  // → [N, 4 channels, H/stride, W/stride]

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  nn::Conv2d conv3_;
  nn::BatchNorm2d bn3_;
  nn::Sequential downsample_;  // empty if the shapes agree
};

enum class Stem {
  ImageNet,
  Cifar,  // a 3×3 convolution of stride 1 and no pool, for images of some 32×32 pixels
};

struct ResNetOptions {
  int64_t in_channels = 3;
  int64_t num_classes = 1000;
  Stem stem = Stem::ImageNet;
};

//   layer   output    ResNet-18  -34    -50    -101   -152
//   conv1   112×112   7×7, 64, stride 2; then 3×3 max pool, stride 2
//   layer1  56×56     2          3      3      3      3      blocks of 64 channels
//   layer2  28×28     2          4      4      4      8                128
//   layer3  14×14     2          6      6      23     36               256
//   layer4  7×7       2          3      3      3      3                512
//   fc      1×1       average, linear
//
// ResNet-18 and -34 consist of BasicBlocks, the others of Bottlenecks, whose outputs have four
// times as many channels. ResNet-18 has 11,173,962 parameters for CIFAR-10, ResNet-50 25,557,032
// for ImageNet.
class ResNet : public nn::Module {
 public:
  // depth is 18, 34, 50, 101 or 152; otherwise throws Error.
  explicit ResNet(int depth, ResNetOptions options = {});
  // [N, in_channels, H, W] → [N, num_classes].
  Tensor forward(const Tensor& x) override;

 private:
  Stem stem_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Sequential layers_[4];
  nn::Linear fc_;
};

}  // namespace ringgrad::models
