// The MNIST ConvNet: (convolution 5×5, batch norm, ReLU, max pool) twice, and a linear layer. 29,034 parameters for
// 28×28 images of one channel.
#pragma once

#include "ringgrad/nn/layers.h"

namespace ringgrad::models {

struct ConvNetOptions {
  int64_t in_channels = 1, num_classes = 10, image_size = 28;
};

class ConvNet : public nn::Module {
 public:
  explicit ConvNet(ConvNetOptions options = {});
  Tensor forward(const Tensor& x) override;  // [N, in_channels, S, S] → [N, num_classes]

 private:
  // Its convolution and norm are called "0" and "1", as in a Sequential of the four steps.
  struct Layer : nn::Module {
    Layer(int64_t in_channels, int64_t out_channels);
    Tensor forward(const Tensor& x) override;
    nn::Conv2d conv;
    nn::BatchNorm2d bn;
  };
  Layer layer1_, layer2_;
  nn::Linear fc_;
};

// LeNet-5 (LeCun, Bottou, Bengio & Haffner 1998) with ReLU and max pooling, as everybody trains it today. 61,706
// parameters for 28×28 images of one channel.
struct LeNetOptions {
  int64_t in_channels = 1, num_classes = 10, image_size = 28;
};

class LeNet : public nn::Module {
 public:
  explicit LeNet(LeNetOptions options = {});
  Tensor forward(const Tensor& x) override;  // [N, in_channels, S, S] → [N, num_classes]

 private:
  nn::Conv2d conv1_, conv2_;
  nn::Linear fc1_, fc2_, fc3_;
};

}  // namespace ringgrad::models
