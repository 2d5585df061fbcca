// The blocks of residual networks (He, Zhang, Ren & Sun 2015, figure 5), with torchvision's names of parameters. The
// last batch norm adds the shortcut and applies the ReLU in the same pass over the data.
#pragma once

#include <memory>

#include "ringgrad/nn/batch_norm2d.h"
#include "ringgrad/nn/conv2d.h"
#include "ringgrad/nn/sequential.h"

namespace ringgrad::models {

// What leads past a block whose output has another shape than its input (§3.3 there).
enum class Shortcut {
  Padding,     // option A: every second pixel, and channels of zeros, half of them on either side; no parameters
  Projection,  // option B: a 1×1 convolution and batch norm
};

// Two 3×3 convolutions, the first with the stride.
class BasicBlock : public nn::Module {
 public:
  static constexpr int64_t kExpansion = 1;
  BasicBlock(int64_t in_channels, int64_t channels, int64_t stride, Shortcut shortcut = Shortcut::Projection);
  Tensor forward(const Tensor& x) override;  // [N, in_channels, H, W] → [N, channels, H/stride, W/stride]

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  nn::Sequential downsample_;  // empty where the shapes agree, and with padding
  int64_t stride_, padding_;   // zero channels on either side
};

// 1×1 down to `channels`, 3×3 with the stride (torchvision's place for it, "v1.5"), 1×1 up to four times as many.
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
  nn::Sequential downsample_;
};

// Draws every convolution's weights anew, as He et al. and torchvision do: normal, by the fan out, for ReLU.
void init_residual_network(nn::Module& network);

}  // namespace ringgrad::models
