// Residual networks (He, Zhang, Ren & Sun 2015) with torchvision's names of parameters, so that
// weights are exchanged freely: those for ImageNet (table 1), and the slim ones for CIFAR (§4.2).
#pragma once

#include "ringgrad/nn/basic_layers.h"
#include "ringgrad/nn/sequential.h"

namespace ringgrad::models {

// What leads past a block whose output has another shape than its input (§3.3).
enum class Shortcut {
  // Option A: every second pixel, and channels of zeros, half of them on either side; no
  // parameters.
  Padding,
  // Option B: a 1×1 convolution and batch norm.
  Projection,
};

// A block (figure 5) ends with a batch norm that adds the shortcut and applies the ReLU in the same
// pass over the data.

// Two 3×3 convolutions, the first with the stride.
class BasicBlock : public nn::Module {
 public:
  static constexpr int64_t kExpansion = 1;
  BasicBlock(int64_t in_channels, int64_t channels, int64_t stride,
             Shortcut shortcut = Shortcut::Projection);
  // [N, in_channels, H, W] → [N, channels, H/stride, W/stride].
  Tensor forward(const Tensor& x) override;

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  nn::Sequential downsample_;  // empty where the shapes agree, and with padding
  int64_t stride_, padding_;   // zero channels on either side
};

// 1×1 down to `channels`, 3×3 with the stride (torchvision's place for it, "v1.5"), 1×1 up to four
// times as many.
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
  nn::Sequential downsample_;  // empty where the shapes agree
};

enum class Stem {
  ImageNet,
  Cifar,  // a 3×3 convolution of stride 1 and no pool, for images of some 32×32 pixels
};

struct ResNetOptions {
  int64_t in_channels = 3, num_classes = 1000;
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
// -18 and -34 are made of BasicBlocks, the others of Bottlenecks, whose outputs have four times as
// many channels. ResNet-18 has 11,173,962 parameters for CIFAR-10, ResNet-50 25,557,032 for
// ImageNet.
class ResNet : public nn::Module {
 public:
  // 18, 34, 50, 101 or 152; else throws Error.
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

struct CifarResNetOptions {
  int64_t in_channels = 3, num_classes = 10;
  Shortcut shortcut = Shortcut::Padding;
};

// Depth 6n + 2, few channels:
//
//   output   32×32      16×16    8×8      1×1
//   layers   1 + 2n     2n       2n       average, linear
//   channels 16         32       64
//
// ResNet-20 has 269,722 parameters with padding and 272,474 with projections.
class CifarResNet : public nn::Module {
 public:
  // 20, 32, 44, 56, 110, …; else throws Error.
  explicit CifarResNet(int depth, CifarResNetOptions options = {});
  // [N, in_channels, H, W] → [N, num_classes].
  Tensor forward(const Tensor& x) override;

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Sequential layers_[3];
  nn::Linear fc_;
};

}  // namespace ringgrad::models
