// A small convolutional network, as in many tutorials, for images such as MNIST's.
#pragma once

#include "ringgrad/nn/basic_layers.h"
#include "ringgrad/nn/sequential.h"

namespace ringgrad::models {

struct ConvNetOptions {
  // pixels on each side
  int64_t in_channels = 1;
  int64_t num_classes = 10;
  int64_t image_size = 28;
};

// (Convolution 5×5, batch norm, ReLU, max pool) twice, and a linear layer. It has 29,034 parameters
// for MNIST. Throws Error for images of less than 4 pixels.
class ConvNet : public nn::Module {
 public:
  explicit ConvNet(ConvNetOptions options = {});
  Tensor forward(const Tensor& x) override;  // [N, in_channels, S, S] → [N, num_classes]

 private:
  // The convolution and the norm are called "0" and "1", as in a Sequential of the four steps,
  // whose weights it can load.
  struct Layer : nn::Module {
    Layer(int64_t in_channels, int64_t out_channels);
    Tensor forward(const Tensor& x) override;
    nn::Conv2d conv;
    nn::BatchNorm2d bn;
  };
  Layer layer1_;
  Layer layer2_;
  nn::Linear fc_;
};

}  // namespace ringgrad::models
