// ResNets for CIFAR (He et al. 2015, §4.2): depth 6n + 2, few channels.
//
//   output   32×32      16×16    8×8      1×1
//   layers   1 + 2n     2n       2n       average, linear
//   channels 16         32       64
#pragma once

#include "ringgrad/models/residual_block.h"
#include "ringgrad/nn/linear.h"

namespace ringgrad::models {

struct CifarResNetOptions {
  int64_t in_channels = 3, num_classes = 10;
  Shortcut shortcut = Shortcut::Padding;
};

// ResNet-20 has 269,722 parameters with padding and 272,474 with projections.
class CifarResNet : public nn::Module {
 public:
  explicit CifarResNet(int depth, CifarResNetOptions options = {});  // 20, 32, 44, 56, 110, …
  Tensor forward(const Tensor& x) override;                          // [N, in_channels, H, W] → [N, num_classes]

 private:
  void add_blocks(nn::Sequential& layer, int count, int64_t in_channels, int64_t channels, Shortcut shortcut);

  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Sequential layer1_, layer2_, layer3_;
  nn::Linear fc_;
};

}  // namespace ringgrad::models
