// The slim residual networks for CIFAR (He, Zhang, Ren & Sun 2015, §4.2), and the block that they
// share with the smaller ones for ImageNet (resnet.h).
#pragma once

#include "ringgrad/nn/basic_layers.h"
#include "ringgrad/nn/sequential.h"

namespace ringgrad::models {

// The path around a block whose output has another shape than its input (§3.3).
enum class Shortcut {
  // Option A: takes every second pixel and adds channels of zeros, half of them on each side. It
  // has no parameters.
  Padding,
  // Option B: applies a 1×1 convolution and batch norm.
  Projection,
};

// A block (figure 5) ends with a batch norm that adds the shortcut and applies the ReLU in the same
// pass over the data.

// Two 3×3 convolutions, of which the first has the stride.
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
  nn::Sequential downsample_;  // empty if the shapes agree, and with padding
  // zero channels on each side
  int64_t stride_;
  int64_t padding_;
};

struct CifarResNetOptions {
  int64_t in_channels = 3;
  int64_t num_classes = 10;
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
  // depth is 20, 32, 44, 56, 110, …; otherwise throws Error.
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
