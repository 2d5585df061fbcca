// The classic first convolutional network.
#pragma once

#include "ringgrad/models/convnet.h"

namespace ringgrad::models {

// LeNet-5 (LeCun, Bottou, Bengio & Haffner 1998) with ReLU and max pooling, as is common today. It
// has 61,706 parameters for MNIST. Throws Error for images of less than 12 pixels.
class LeNet : public nn::Module {
 public:
  explicit LeNet(ConvNetOptions options = {});
  Tensor forward(const Tensor& x) override;  // [N, in_channels, S, S] → [N, num_classes]

 private:
  nn::Conv2d conv1_;
  nn::Conv2d conv2_;
  nn::Linear fc1_;
  nn::Linear fc2_;
  nn::Linear fc3_;
};

}  // namespace ringgrad::models
